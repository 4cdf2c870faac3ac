# SPDX-License-Identifier: Apache-2.0
"""The table of labels that ``n3ic data extract --labels`` reads."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic.data.files import read_bytes
from n3ic.errors import DataError
from n3ic.evaluation.study import StudyResult
from n3ic.util.display import TextTable
from n3ic.util.files import write_atomic

if TYPE_CHECKING:
    from n3ic.studies.label.names import NamedFlow

_SHOWN = 20
COLUMNS = (
    "source", "source_port", "destination", "destination_port", "protocol", "start", "end",
    "label", "server_name", "dns_name", "alpn", "ja4",
)  # fmt: skip


@dataclass(frozen=True)
class Patterns:
    """Rules that map names to classes.

    Attributes:
        rules: pairs of a shell pattern and a class; the first pattern that matches decides.
    """

    rules: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, path: Path) -> Patterns:
        """Read a CSV table with the columns ``pattern`` and ``label``.

        Raises:
            DataError: The file lacks a column or a value, or holds no rule.
        """
        text = read_bytes(path).decode("utf-8-sig", "replace")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        rules = []
        for row in reader:
            rule = tuple((row.get(name) or "").strip() for name in ("pattern", "label"))
            if not all(rule):
                raise DataError(f"{path}, line {reader.line_num}: expected a pattern and a label")
            rules.append((rule[0].lower(), rule[1]))
        if not rules:
            raise DataError(f"{path}: expected the columns pattern and label, and a rule")
        return cls(tuple(rules))

    def of(self, name: str) -> str:
        """The class of a name; empty if no pattern matches."""
        return next((label for pattern, label in self.rules if fnmatchcase(name, pattern)), "")


@dataclass(frozen=True, repr=False)
class LabelCounts(StudyResult):
    """The labels of some captures.

    Attributes:
        path: the CSV file.
        flows: number of flows.
        hellos: how many of them had a hello.
        quic: how many of those hellos came over QUIC.
        dns: how many flows had a name from DNS but no hello.
        labels: number of flows by label, the most frequent first.
    """

    path: Path
    flows: int
    hellos: int
    quic: int
    dns: int
    labels: Mapping[str, int]

    @property
    def title(self) -> str:
        """How many flows have a label."""
        return f"labels of {sum(self.labels.values()):,} of {self.flows:,} flows"

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """The most frequent labels."""
        rows = tuple((name, f"{n:,}") for name, n in [*self.labels.items()][:_SHOWN])
        return (TextTable(self.title, ("label", "flows"), rows),)

    @property
    def conclusions(self) -> tuple[str, ...]:
        """How many labels are not shown, and where the names come from."""
        more = len(self.labels) - _SHOWN
        hellos = f"{self.hellos:,} hellos ({self.quic:,} of QUIC)"
        return (
            *([f"and {more:,} more labels"] if more > 0 else []),
            f"{hellos}, {self.dns:,} names by DNS alone -> {self.path}",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "path": str(self.path)}


def write_labels(flows: Iterable[NamedFlow], out: Path, patterns: Patterns | None) -> LabelCounts:
    """Write the flows that have a name or a fingerprint.

    Args:
        flows: the flows.
        out: the CSV file to write; it is written completely or not at all.
        patterns: the classes of names; None makes the name itself the label.
    """
    from n3ic.studies.label.names import text_of

    label_counts: Counter[str] = Counter()
    counts = {"flows": 0, "hellos": 0, "quic": 0, "dns": 0}
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for flow in flows:
        counts["flows"] += 1
        hello, name = flow.hello, flow.name
        counts["hellos"] += hello is not None
        counts["quic"] += hello is not None and hello.ja4.startswith("q")
        counts["dns"] += bool(flow.dns) and hello is None
        if not name and hello is None:
            continue
        label = patterns.of(name) if patterns else name
        label_counts.update([label] if label else [])
        writer.writerow(
            [
                text_of(flow.source[0]), flow.source[1],
                text_of(flow.destination[0]), flow.destination[1], flow.protocol,
                f"{flow.first / 1e6:.6f}", f"{flow.last / 1e6:.6f}", label,
                hello.server_name if hello else "", flow.dns,
                hello.protocol if hello else "", hello.ja4 if hello else "",
            ]
        )  # fmt: skip
    write_atomic(out, text.getvalue())
    return LabelCounts(out, **counts, labels=dict(label_counts.most_common()))
