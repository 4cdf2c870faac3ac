# SPDX-License-Identifier: Apache-2.0
"""Options that a target, a use case or a generator defines, and their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from n3ic.errors import UsageError, did_you_mean

OptionValue = str | int | float | bool
Options = Mapping[str, OptionValue]


@dataclass(frozen=True)
class Option:
    """An option of a target, ``--name VALUE`` on the command line.

    Attributes:
        name: with dashes, as typed.
        help: one line.
        default: its value when not given; also fixes its type (str, int, float or bool).
        choices: the allowed values of a str option; empty for any.
        minimum: smallest allowed value of a number.
        maximum: largest allowed value of a number.
        only_with: the values of other options with which this one applies, such as
            ``(("style", ("unrolled",)),)``; empty for always.
        newer: leave its default out of records, so that older exports stay byte-identical.
    """

    name: str
    help: str
    default: OptionValue
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    only_with: tuple[tuple[str, tuple[OptionValue, ...]], ...] = ()
    newer: bool = False

    def applies(self, values: Options) -> bool:
        """Whether the option applies, given the values of the others."""
        return all(values[name] in allowed for name, allowed in self.only_with)

    def parse(self, text: OptionValue) -> OptionValue:
        """The option's value from what was typed.

        Raises:
            UsageError: the text is not a valid value.
        """
        kind = type(self.default)
        try:
            if kind is bool:
                value: OptionValue = _parse_bool(text)
            elif kind is int and isinstance(text, str):
                value = int(text, 0)  # also takes 0x10
            else:
                value = kind(text)
        except (TypeError, ValueError) as error:
            raise UsageError(f"--{self.name}: {text!r} is not of type {kind.__name__}") from error
        if self.choices and value not in self.choices:
            hint = did_you_mean(str(text), self.choices)
            known = ", ".join(self.choices)
            raise UsageError(f"--{self.name}: {text!r} is not one of {known}; {hint}".rstrip("; "))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise UsageError(f"--{self.name}: {value} is below {self.minimum:g}")
            if self.maximum is not None and value > self.maximum:
                raise UsageError(f"--{self.name}: {value} is above {self.maximum:g}")
        return value


def parse_options(
    known: Sequence[Option], values_by_name: Mapping[str, OptionValue], owner: str
) -> dict[str, OptionValue]:
    """Check the given values and complete them with the defaults.

    Args:
        known: all options of the owner.
        values_by_name: values or typed texts, by name.
        owner: whose options they are, for the error.

    Raises:
        UsageError: an option is unknown, has an invalid value, or does not apply with the others.
    """
    names = [option.name for option in known]
    for name in values_by_name:
        if name not in names:
            listed = ", ".join(f"--{n}" for n in names) or "none of its own"
            raise UsageError(
                f"{owner} has no option --{name}; {did_you_mean(name, names)}it has {listed}"
            )
    values = {
        o.name: o.parse(values_by_name[o.name]) if o.name in values_by_name else o.default
        for o in known
    }
    for option in known:
        if option.name in values_by_name and not option.applies(values):
            condition = " and ".join(
                f"--{name} {' or '.join(str(v) for v in allowed)}"
                for name, allowed in option.only_with
            )
            raise UsageError(f"--{option.name} applies only with {condition}")
    return values


def applying(known: Sequence[Option], values: Options) -> dict[str, OptionValue]:
    """The values to record: those of the options that apply, sorted by name."""
    return {
        o.name: values[o.name]
        for o in sorted(known, key=lambda o: o.name)
        if o.applies(values) and not (o.newer and values[o.name] == o.default)
    }


def _parse_bool(text: OptionValue) -> bool:
    if isinstance(text, bool):
        return text
    lowered = str(text).lower()
    if lowered in ("1", "true", "yes", "on", ""):  # "" is a flag without a value
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)
