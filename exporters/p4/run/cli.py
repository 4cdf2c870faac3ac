# SPDX-License-Identifier: Apache-2.0
"""Sends commands to a switch by ``simple_switch_CLI``, and reads back the result.

``simple_switch_CLI`` prints its prompt before each command. It continues after a refused command,
and still exits with status 0. So the prompt separates the answers, and only reading the entries
back shows whether the switch accepted a command.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from n3ic.errors import VerifyError
from n3ic.exporters.p4.interpreter import Switch
from n3ic.exporters.p4.interpreter.commands import (
    Command,
    SetDefault,
    SetRates,
    TableAdd,
    TableModify,
)
from n3ic.exporters.p4.interpreter.meters import Rate
from n3ic.exporters.p4.interpreter.tables import BoundAction, Key, Keys, Masked

CLI = "simple_switch_CLI"
CLI_SECONDS = 300
_PROMPT = "RuntimeCmd: "
_UNREACHED = "Could not connect"
_REFUSED = re.compile(r"\b(Error|Invalid|Unknown syntax)\b")
_KEY = re.compile(
    r"^\* .*: *(EXACT|RANGE|TERNARY) +([0-9a-f]+)(?: (?:->|&&&) ([0-9a-f]+))? *$", re.MULTILINE
)
_PRIORITY = re.compile(r"^Priority: (\d+) *$", re.MULTILINE)
_ACTION = re.compile(r"^Action entry: (\S+) -([0-9a-f, ]*)$", re.MULTILINE)
_RATE = re.compile(r"^\d+: info rate = (\S+), burst size = (\d+) *$", re.MULTILINE)
_DEFAULT = "Dumping default entry"
_TAIL = 600


class UnreachedError(VerifyError):
    """No switch answers at the address."""


@dataclass(frozen=True)
class _ExpectedAnswer:
    """Expected content of an answer; parts that are None are not compared."""

    keys: Keys | None = None
    priority: int | None = None
    does: BoundAction | None = None
    rates: tuple[Rate, Rate] | None = None

    def matches(self, answer: str) -> bool:
        """Whether an answer matches."""
        # A table dump lists all entries before the default action, and only that one is compared.
        entry_text = answer.partition(_DEFAULT)[2] if _DEFAULT in answer else answer
        priority = _PRIORITY.search(entry_text)
        return (
            (self.keys is None or _keys(entry_text) == self.keys)
            and (self.priority is None or bool(priority and int(priority[1]) == self.priority))
            and (self.does is None or _does(entry_text, self.does))
            and (self.rates is None or _rates(entry_text) == [(float(r), b) for r, b in self.rates])
        )

    def __str__(self) -> str:
        parts = [] if self.keys is None else [f"keys {_hex(self.keys)}"]
        parts += [] if self.priority is None else [f"priority {self.priority}"]
        parts += [] if self.does is None else [f"{self.does.action} {_hex(self.does.data)}"]
        parts += [] if self.rates is None else [f"{float(r):g}:{b}" for r, b in self.rates]
        return ", ".join(parts).strip()


def change(cli: Sequence[str], switch: Switch, commands: str) -> int:
    """Change the entries of a running switch, and confirm them by reading them back.

    Args:
        cli: ``simple_switch_CLI`` and its address, as a command line.
        switch: the program with the entries of the running switch; the commands also change it.
        commands: commands of the change.

    Returns:
        Number of entries, defaults and meters that were read back and match.

    Raises:
        P4Error: ``simple_switch_CLI`` would refuse or misread a command; nothing was changed.
        UnreachedError: no switch answers; nothing was changed.
        VerifyError: the switch does not hold the expected entries, and nothing was changed; or it
            does not hold the new entries after the change.
    """
    read = switch.read(commands)
    # Handles are numbers: only a switch with the expected keys at them may be changed.
    try:
        _compare(cli, {q: _ExpectedAnswer(keys=w.keys) for q, w in _entries(switch, read).items()})
    except UnreachedError:
        raise
    except VerifyError as error:
        raise VerifyError(
            f"nothing was changed: the switch does not hold the entries of commands.txt: {error}"
        ) from error
    switch.load(commands)
    try:
        run_commands(cli, commands.splitlines())
        return confirm(cli, switch, read)
    except VerifyError as error:
        raise VerifyError(
            f"the change is not confirmed; all, some or none of it may have been made: {error}"
        ) from error


def confirm(cli: Sequence[str], switch: Switch, commands: Sequence[Command]) -> int:
    """Check that a switch holds what commands wrote.

    Returns:
        Number of entries, defaults and meters that were read back.

    Raises:
        VerifyError: an entry differs; the error names it.
    """
    expected_answers = _entries(switch, commands)
    for command in commands:
        match command:
            case SetDefault(table):
                expected_answers[f"table_dump {table}"] = _ExpectedAnswer(
                    does=switch.tables[table].default
                )
            case SetRates(meter, index):
                rates = switch.meters[meter].rates(index)
                expected_answers[f"meter_get_rates {meter} {index}"] = _ExpectedAnswer(rates=rates)
    _compare(cli, expected_answers)
    return len(expected_answers)


def run_commands(cli: Sequence[str], commands: Sequence[str]) -> list[str]:
    """Run commands, one per line.

    Returns:
        The answer to each command.

    Raises:
        UnreachedError: no switch answers.
        VerifyError: a command is refused or crashes ``simple_switch_CLI``; the error names it.
    """
    if not commands:
        return []
    text = "".join(f"{command}\n" for command in commands)
    done = run(cli, CLI_SECONDS, text.encode("ascii"))
    _, *answers = done.stdout.split(_PROMPT)
    if not answers and _UNREACHED in done.stdout + done.stderr:
        raise UnreachedError(f"{CLI}: {end_of(done.stdout + done.stderr)}")
    for command, answer in zip(commands, answers, strict=False):
        if _REFUSED.search(answer):
            raise VerifyError(f"{CLI} refuses {command[:120]!r}: {end_of(answer)}")
    # One more prompt follows the last answer, where the tool reaches the end of its input.
    if done.returncode or len(answers) != len(commands) + 1:
        last = commands[max(0, min(len(answers), len(commands)) - 1)]
        why = end_of(done.stderr or done.stdout)
        raise VerifyError(f"{CLI} ended with {done.returncode} at {last[:120]!r}: {why}")
    return answers[:-1]


def run(
    command: Sequence[str], seconds: float, stdin: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run a tool with its output as text.

    Raises:
        VerifyError: the tool exceeds its time limit.
    """
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise VerifyError(f"{' '.join(command[:6])} took more than {seconds:.0f} s") from error
    return subprocess.CompletedProcess(
        done.args,
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )


def end_of(text: str) -> str:
    """The end of a tool's output, as one line."""
    return " ".join(text.split())[-_TAIL:] or "no message"


def _entries(switch: Switch, commands: Sequence[Command]) -> dict[str, _ExpectedAnswer]:
    """Collect the expected content of entries that commands add or change, by query."""
    expected_answers = {}
    for command in commands:
        match command:
            case TableAdd(table, _, keys, _, priority):
                handle = switch.tables[table].handle(keys, priority)
            case TableModify(table, _, handle):
                pass
            case _:
                continue
        entry = switch.tables[table].entry(handle)
        expected_answers[f"table_dump_entry {table} {handle}"] = _ExpectedAnswer(
            entry.keys, entry.priority, entry.does
        )
    return expected_answers


def _compare(cli: Sequence[str], expected_answers: dict[str, _ExpectedAnswer]) -> None:
    answers = run_commands(cli, list(expected_answers))
    wrong = [
        (question, each, answer)
        for (question, each), answer in zip(expected_answers.items(), answers, strict=True)
        if not each.matches(answer)
    ]
    if wrong:
        question, each, answer = wrong[0]
        raise VerifyError(
            f"{len(wrong)} of {len(expected_answers)} differ; {question}: expected {each}, "
            f"got {end_of(answer)}"
        )


def _keys(answer: str) -> Keys:
    return tuple(_shown_key(*match) for match in _KEY.findall(answer))


def _shown_key(kind: str, first: str, second: str) -> Key:
    if not second:
        return int(first, 16)
    values = int(first, 16), int(second, 16)
    return Masked(*values) if kind == "TERNARY" else values


def _does(answer: str, expected: BoundAction) -> bool:
    match = _ACTION.search(answer)
    if match is None or match[1] != expected.action:
        return False
    # bmv2 prints values in the fewest bytes, so that 0 may be printed as nothing.
    words = match[2].split(",") if match[2].strip() or expected.data else []
    return [int(word.strip() or "0", 16) for word in words] == list(expected.data)


def _rates(answer: str) -> list[tuple[float, int]]:
    return [(float(rate), int(burst)) for rate, burst in _RATE.findall(answer)]


def _hex(values: Sequence[Key]) -> str:
    return " ".join(map(_key_text, values))


def _key_text(key: Key) -> str:
    if isinstance(key, Masked):
        return f"{key.value:#x}&&&{key.mask:#x}"
    return f"{key[0]:#x}->{key[1]:#x}" if isinstance(key, tuple) else f"{key:#x}"
