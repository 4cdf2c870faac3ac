# SPDX-License-Identifier: Apache-2.0
"""Loads one or more UNSW-NB15 files as one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.data.delimited import Sheet
from n3ic.data.files import Content, combined_sha256, find_tables, read_contents
from n3ic.data.table import FlowTable, SourceFile
from n3ic.datasets.unsw_nb15.cache import read_cached, write_cached
from n3ic.datasets.unsw_nb15.catalogue import CATALOGUE, narrow_columns
from n3ic.datasets.unsw_nb15.columns import CLASSES, NORMAL
from n3ic.datasets.unsw_nb15.meter import one_tap
from n3ic.datasets.unsw_nb15.official import identify
from n3ic.datasets.unsw_nb15.reader import FlowFile, NotFlowsError, flows_of, read_flows
from n3ic.datasets.unsw_nb15.windows import causal_windows
from n3ic.errors import DataError

REAL_NAME = "unsw-nb15"
SYNTHETIC_NAME = "unsw-nb15-synthetic"
MIN_COMMON_ROWS = 3
"""Rows that a recoded file must share with a named one before a code counts as known."""


@dataclass(frozen=True, eq=False)
class _FilePart:
    source: SourceFile
    partition: str
    flows: FlowFile | None


def load_table(
    paths: str | Path | Sequence[str | Path],
    *,
    cache: bool = True,
) -> FlowTable:
    """Read files as one table.

    The table counts as synthetic, in its name too, if any of its files is synthetic. If a folder
    contains an official partition, only partitions are read from it, because the raw files hold the
    same flows again.

    Args:
        paths: a file, a folder, or several of them.
        cache: whether parsed files are kept in the user's cache folder.

    Raises:
        DataError: a file is malformed; the error names file, line and column.
    """
    inputs = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    explicit = {p for p in inputs if not p.is_dir()}
    parts: list[_FilePart] = []
    name_of_digest: dict[str, str] = {}
    for path in find_tables(inputs):
        for content in read_contents(path):
            if content.sha256 in name_of_digest:
                parts.append(
                    _skipped(content, f"the same bytes as {name_of_digest[content.sha256]}")
                )
                continue
            name_of_digest[content.sha256] = content.name
            flows = read_cached(content.sha256) if cache else None
            if flows is None:
                try:
                    flows = read_flows(content)
                except NotFlowsError as error:
                    if path in explicit and content.name == str(path) and len(inputs) == 1:
                        raise
                    note = f"skipped: {str(error).removeprefix(content.name).lstrip(':, ')}"
                    parts.append(
                        _FilePart(SourceFile(content.name, content.sha256, 0, note), "", None)
                    )
                    continue
                if cache:
                    write_cached(content.sha256, flows)
            parts.append(_part(content, flows))
    if any(p.partition for p in parts):
        parts = [
            p if p.partition or Path(p.source.path) in explicit else _left_out(p) for p in parts
        ]
    return _table(parts)


def load_sheet(sheet: Sheet) -> FlowTable:
    """Read a table in memory like its file.

    Raises:
        DataError: the table breaks the layout; the error names row and column.
    """
    text = sheet.as_text()
    return _table([_part(Content(sheet.name, text.body), flows_of(text))])


def _part(content: Content, flows: FlowFile) -> _FilePart:
    identity, partition = identify(content, flows.layout, len(flows), flows.counts)
    if flows.synthetic:
        identity, partition = "synthetic: made by a generator", ""
    source = SourceFile(content.name, content.sha256, len(flows), identity)
    return _FilePart(source, partition, flows)


def _skipped(content: Content, why: str) -> _FilePart:
    return _FilePart(SourceFile(content.name, content.sha256, 0, f"skipped: {why}"), "", None)


def _left_out(part: _FilePart) -> _FilePart:
    if part.flows is None:
        return part
    note = f"left out beside an official partition: {part.source.identity}"
    return _FilePart(replace(part.source, rows=0, identity=note), "", None)


def _table(parts: list[_FilePart]) -> FlowTable:
    read = [(p, p.flows) for p in parts if p.flows is not None]
    if not read:
        listed = "; ".join(f"{p.source.path}: {p.source.identity}" for p in parts)
        raise DataError(f"no flows found: {listed}")
    files = [flows for _, flows in read]
    shared = [c for c in files[0].columns if all(c in f.columns for f in files)]
    shared_values = {c: np.concatenate([f.columns[c] for f in files]) for c in shared}
    windows = causal_windows(narrow_columns(shared_values))
    columns = narrow_columns(shared_values, windows)
    partition = np.concatenate([np.full(len(f), p.partition, dtype="U5") for p, f in read])
    synthetic = any(f.synthetic for f in files)
    stime = columns.get("stime")
    return FlowTable(
        name=SYNTHETIC_NAME if synthetic else REAL_NAME,
        features=columns,
        catalogue=tuple(f for f in CATALOGUE if f.name in columns),
        label=np.concatenate([f.label for f in files]),
        classes=CLASSES,
        synthetic=synthetic,
        sha256=combined_sha256([p.source.sha256 for p, _ in read]),
        category=np.concatenate(_named_categories(files)),
        partition=partition,
        time_order=stime is not None and bool((np.diff(stime) >= 0).all()),
        sources=tuple(p.source for p in parts),
        meter=one_tap(windows=bool(windows)),
    )


def _named_categories(files: list[FlowFile]) -> list[NDArray[np.str_]]:
    """Name the categories that a file recodes as numbers, if the other files reveal the names.

    Sequence numbers identify TCP flows, so a flow that occurs in a recoded and in a named file
    gives the name of its code. A code that stays unknown reads ``category N``.
    """
    names: dict[tuple[int, ...], str] = {}
    if any(f.coded for f in files):
        for f in (f for f in files if not f.coded):
            names.update(zip(_keys(f), f.category.tolist(), strict=True))
    out = []
    for f in files:
        if not f.coded:
            out.append(f.category)
            continue
        votes: dict[str, Counter[str]] = {}
        for key, code in zip(_keys(f), f.category.tolist(), strict=True):
            if key in names and key[0] and key[1]:
                votes.setdefault(code, Counter())[names[key]] += 1
        benign = {c for c in set(f.category.tolist()) if not f.label[f.category == c].any()}
        known = {
            code: next(iter(count))
            for code, count in votes.items()
            if len(count) == 1 and count.total() >= MIN_COMMON_ROWS
        }
        known |= dict.fromkeys(benign, NORMAL)
        ambiguous = {n for n, k in Counter(known.values()).items() if k > 1 and n != NORMAL}
        lookup = {
            c: known[c] if c in known and known[c] not in ambiguous else f"category {c or 'blank'}"
            for c in set(f.category.tolist())
        }
        out.append(np.array([lookup[c] for c in f.category.tolist()]))
    return out


def _keys(f: FlowFile) -> list[tuple[int, ...]]:
    names = ("stcpb", "dtcpb", "sbytes", "dbytes", "spkts", "dpkts", "dur")
    return list(zip(*(f.columns[n].tolist() for n in names), strict=True))
