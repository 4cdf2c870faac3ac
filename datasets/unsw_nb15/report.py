# SPDX-License-Identifier: Apache-2.0
"""Reports the content of files and their problems: the figures of the data card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from n3ic.data.split import (
    MIN_ROWS,
    arrow_table,
    distinct_rows,
    protocols_of,
    seen_in_training,
    split,
)
from n3ic.data.table import FlowTable, SourceFile
from n3ic.datasets.unsw_nb15.columns import SERVICES
from n3ic.datasets.unsw_nb15.loader import load_table

_FEW = 256
_PORTS = {
    20: "ftp-data",
    21: "ftp",
    22: "ssh",
    25: "smtp",
    53: "dns",
    67: "dhcp",
    80: "http",
    110: "pop3",
    161: "snmp",
    443: "ssl",
    1812: "radius",
    6667: "irc",
}


@dataclass(frozen=True)
class DataReport:
    """Findings of :func:`check`.

    Attributes:
        name: the data set that the files belong to.
        synthetic: whether a generator made the flows.
        sha256: digest of the data.
        rows: number of flows.
        classes: number of flows per class.
        categories: number of flows per category.
        partitions: flows per official partition; the empty name counts flows outside of them.
        protocols: ways in which the table can be split.
        duplicate_share: share of rows that repeat an earlier row in every column, including the
            category.
        contradiction_share: share of rows with the same features as a row of another class.
        twin_share: share of test rows of a stratified random 90/10 split (seed 0) that duplicate a
            training row in every feature; None for too few rows to split.
        one_column: share of the rows that the majority class of one column's value gets right,
            for the columns marked as leaks that have at most 256 values.
        rate_agreement: share of the rows whose rate is ``(spkts + dpkts - 1) / dur``, to half a
            packet a second.
        port_agreement: share of the rows whose service follows from the destination port alone;
            None where the table has no ports.
        sources: files, with what each is and the number of rows read from it.
        problems: facts that a user should know before trusting a figure.
    """

    name: str
    synthetic: bool
    sha256: str
    rows: int
    classes: Mapping[str, int]
    categories: Mapping[str, int]
    partitions: Mapping[str, int]
    protocols: tuple[str, ...]
    duplicate_share: float
    contradiction_share: float
    twin_share: float | None
    one_column: Mapping[str, float]
    rate_agreement: float
    port_agreement: float | None
    sources: tuple[SourceFile, ...]
    problems: tuple[str, ...]


def check(paths: str | Path | Sequence[str | Path]) -> DataReport:
    """Read files and report what they are, how they are balanced and what is wrong with them.

    Raises:
        DataError: a file is malformed; the error names file, line and column.
    """
    return report(load_table(paths))


def report(table: FlowTable) -> DataReport:
    """Report on a table that is already loaded."""
    category = table.category if table.category is not None else table.label.astype(np.str_)
    flows = arrow_table(table)
    labels = flows.append_column("\0label", pa.array(table.label)).group_by(flows.column_names)
    same = labels.aggregate([("\0label", f) for f in ("min", "max", "count")]).select(
        ["\0label_min", "\0label_max", "\0label_count"]
    )
    lowest, highest, count = (column.to_numpy() for column in same)
    partition = table.partition if table.partition is not None else np.full(len(table), "")
    return DataReport(
        name=table.name,
        synthetic=table.synthetic,
        sha256=table.sha256,
        rows=len(table),
        classes={c: int((table.label == i).sum()) for i, c in enumerate(table.classes)},
        categories=dict(Counter(category.tolist()).most_common()),
        partitions=dict(Counter(partition.tolist())),
        protocols=protocols_of(table),
        duplicate_share=1 - distinct_rows(arrow_table(table, category)) / len(table),
        contradiction_share=float(count[lowest != highest].sum() / len(table)),
        twin_share=_twin_share(table),
        one_column={f.name: a for f in table.catalogue if (a := _one_column(table, f.name))},
        rate_agreement=_rate_agreement(table),
        port_agreement=_port_agreement(table),
        sources=table.sources,
        problems=_problems(table),
    )


def _twin_share(table: FlowTable) -> float | None:
    if len(table) < MIN_ROWS:
        return None
    parts = split(table, "random", 0)
    fitted = np.concatenate([parts.train, parts.validation])
    return float(seen_in_training(table, fitted, parts.test).mean())


def _one_column(table: FlowTable, name: str) -> float:
    if not table.feature(name).leaks:
        return 0.0
    values, index = np.unique(table.features[name], return_inverse=True)
    if len(values) > _FEW:
        return 0.0
    counts = np.zeros((len(values), len(table.classes)), dtype=np.int64)
    np.add.at(counts, (index, table.label), 1)
    return float(counts.max(axis=1).sum() / len(table))


def _rate_agreement(table: FlowTable) -> float:
    f = table.features
    seconds = f["dur"] / 1e6
    gaps = f["spkts"] + f["dpkts"] - 1
    rate = np.divide(gaps, seconds, out=np.zeros(len(table)), where=seconds > 0)
    return float((np.abs(rate - f["rate"] / 1e3) <= 0.5).mean())


def _port_agreement(table: FlowTable) -> float | None:
    if "dsport" not in table.features:
        return None
    by_port = np.zeros(65536, dtype=np.int64)
    for port, service in _PORTS.items():
        by_port[port] = SERVICES[service]
    return float((by_port[table.features["dsport"]] == table.features["service"]).mean())


def _problems(table: FlowTable) -> tuple[str, ...]:
    out = []
    for s in table.sources:
        name = Path(s.path).name.lower()
        for word, other in (("train", "test"), ("test", "train")):
            if word in name and f"official {other} partition" in s.identity:
                out.append(f"{s.path}: named like the {word} partition, but it is the {other} one")
        if "other categories" in s.identity:
            out.append(f"{s.path}: {s.identity}")
    if table.category is not None:
        unnamed = sorted(
            {c for c in np.unique(table.category).tolist() if str(c).startswith("category ")}
        )
        if unnamed:
            out.append(
                f"categories without a name: {', '.join(unnamed)}; load a file with names that "
                "shares rows with the recoded one"
            )
    present = [c for i, c in enumerate(table.classes) if (table.label == i).any()]
    if len(present) == 1:
        out.append(f"all rows are {present[0]}: nothing can be trained on them")
    if table.partition is not None and set(table.partition.tolist()) == {"test"}:
        out.append("the train partition is absent: protocol 'partition' cannot be run")
    if table.partition is not None and set(table.partition.tolist()) == {"train"}:
        out.append("the test partition is absent: protocol 'partition' cannot be run")
    return tuple(out)
