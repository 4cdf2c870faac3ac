# SPDX-License-Identifier: Apache-2.0
"""Reads an ``.info`` file: finds the field that holds the class, and reads the labels of flows."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from n3ic.data.files import printable
from n3ic.datasets.upc_aau.classes import CLASSES, FLOWS_PER_CLASS, class_name
from n3ic.datasets.upc_aau.synthetic import MARK
from n3ic.errors import DataError
from n3ic.meter.info_labels import (
    FIRST_UNSURE,
    MAX_LINE,
    PROTOCOL_FIELD,
    InfoFlow,
    info_lines,
    parse_info,
)
from n3ic.meter.labels import Labelled, Labels

SETTINGS = "upc-aau.toml"
_LAST_FIELD = 15  # later fields may be parts of a URL, which may contain separators
_DISTINCT = 4096  # values of a field that are counted


@dataclass(frozen=True)
class Settings:
    """Settings by the user, from the file ``upc-aau.toml`` beside the captures.

    Attributes:
        label_field: field of the label, counted from 0; -1 for the one with the most classes.
        protocol_field: field of the transport protocol.
        classes: class of each label, written as :func:`.classes.class_name` does.
        flows_per_class: maximum number of flows per class; 0 for all.
    """

    label_field: int = -1
    protocol_field: int = PROTOCOL_FIELD
    classes: Mapping[str, str] = field(default_factory=lambda: {name: name for name in CLASSES})
    flows_per_class: int = FLOWS_PER_CLASS

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """Read the settings of a folder; the defaults if it has none.

        Raises:
            DataError: the file is damaged, or has an unknown key or an invalid value.
        """
        path = folder / SETTINGS
        try:
            entries: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read: {error}") from error
        unknown = set(entries) - set(cls.__dataclass_fields__)
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise DataError(f"{path}: unknown key {min(unknown)!r}, expected one of {known}")
        for name, value in entries.items():
            if name == "classes":
                is_table_of_names = isinstance(value, dict) and all(
                    isinstance(v, str) for v in value.values()
                )
                if not is_table_of_names or not value:
                    raise DataError(f"{path}: [classes] names the class of each label, as text")
                entries[name] = {class_name(k): class_name(v) for k, v in value.items()}
            elif type(value) is not int or not 0 <= value <= 10**9:
                raise DataError(f"{path}: {name} is a whole number, got {value!r}")
        return cls(**entries)


@dataclass(frozen=True)
class InfoFile:
    """Labelled lines of a file, and facts about them.

    Attributes:
        labels: label of each flow: a class, or the file's text if it is not a class.
        label_field: index of the field that holds the labels.
        lines: lines that are not blank.
        bad: lines that were left out, by reason.
        classes: lines of each class.
        other_labels: the most frequent labels that are not classes, with their numbers of lines.
        other_lines: lines of all such labels.
        notes: what was assumed, as sentences.
        synthetic: whether a line says that a generator made it.
    """

    labels: Labels
    label_field: int
    lines: int
    bad: Mapping[str, int]
    classes: Mapping[str, int]
    other_labels: Mapping[str, int]
    other_lines: int
    notes: tuple[str, ...]
    synthetic: bool


def read_info(path: Path, settings: Settings) -> InfoFile:
    """Read a file; lines that cannot be read are counted by reason and left out.

    Args:
        path: the file, plain or packed; it is read twice.
        settings: settings of the user.

    Raises:
        DataError: the file cannot be read, or no field holds a class.
    """
    at, notes = _label_field(path, settings)
    bad: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    protocols: Counter[int] = Counter()
    entries = []
    synthetic = False
    for flow in _flows(path, settings):
        if isinstance(flow, str):
            bad[flow] += 1
        elif at >= len(flow.fields) or not flow.fields[at].strip():
            bad["no label"] += 1
        else:
            label = class_name(flow.fields[at])
            label = settings.classes.get(label, f"other: {label}")
            outcomes[label] += 1
            protocols[flow.key[1]] += 1
            entries.append((flow.key, Labelled(label, flow.start, flow.end)))
            synthetic = synthetic or MARK in flow.fields
    if protocols[0]:
        notes.append(
            f"field {settings.protocol_field} (presumably the transport protocol) names none in "
            f"{protocols[0]:,} of {outcomes.total():,} lines: these lines match any protocol"
        )
    classes = {c: outcomes.pop(c, 0) for c in dict.fromkeys(settings.classes.values())}
    return InfoFile(
        labels=Labels.of_entries(entries),
        label_field=at,
        lines=bad.total() + len(entries),
        bad=dict(sorted(bad.items())),
        classes=classes,
        other_labels={printable(k.removeprefix("other: ")): n for k, n in outcomes.most_common(5)},
        other_lines=outcomes.total(),
        notes=tuple(notes),
        synthetic=synthetic,
    )


def _flows(path: Path, settings: Settings) -> Iterator[InfoFlow | str]:
    for line in info_lines(path):
        if line.strip():
            yield parse_info(line, settings.protocol_field)


def _label_field(path: Path, settings: Settings) -> tuple[int, list[str]]:
    """The field with the most classes, or the one that the user names; and notes about it.

    Raises:
        DataError: no field holds a class.
    """
    class_counts: Counter[int] = Counter()
    lines = 0
    for fields in _split(path):
        lines += 1
        for i, text in enumerate(fields, FIRST_UNSURE):
            if text and class_name(text) in settings.classes:
                class_counts[i] += 1
    if settings.label_field >= 0:
        at = settings.label_field
        if not class_counts[at]:
            raise DataError(_no_class(path, f"field {at}"))
        return at, [f"{SETTINGS} says that field {at} of {path.name} holds the label"]
    if not class_counts.total():
        raise DataError(_no_class(path, "a field"))
    at, hits = min(class_counts.items(), key=lambda item: (-item[1], item[0]))
    notes = [
        f"field {at} of {path.name} (counted from 0) was taken for the label: it holds one of "
        f"the {len(settings.classes)} classes in {hits:,} of {lines:,} lines, the most of any field"
    ]
    notes += [
        f"field {i} holds classes, too, in {n:,} lines: they were not read"
        for i, n in sorted(class_counts.items())
        if n and i != at
    ]
    return at, notes


def _split(path: Path) -> Iterator[list[str]]:
    """Yield the fields after the ports of each line that has any."""
    for line in info_lines(path):
        fields = line.split("#")[FIRST_UNSURE : _LAST_FIELD + 1]
        if fields and len(line) <= MAX_LINE:
            yield fields


def _no_class(path: Path, where: str) -> str:
    values: dict[int, Counter[str]] = {}
    lines = 0
    for fields in _split(path):
        lines += 1
        for i, text in enumerate(fields, FIRST_UNSURE):
            name, counts = class_name(text), values.setdefault(i, Counter())
            if name and (name in counts or len(counts) < _DISTINCT):
                counts[name] += 1
    listed = "; ".join(
        f"field {i}: " + ", ".join(f"{printable(v)} ({n:,})" for v, n in counts.most_common(4))
        for i, counts in sorted(values.items())
        if counts
    )
    return (
        f"{path}: expected one of the classes in {where} after the ports, none of {lines:,} lines "
        f"has it; most frequent are {listed or 'none'}. Name the field and the classes of "
        f"its labels in {SETTINGS} beside the file (see the data card)"
    )
