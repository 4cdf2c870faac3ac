# SPDX-License-Identifier: Apache-2.0
"""Classify any number of flows in bounded memory, from a table to a table of classes."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

import numpy as np

from n3ic.data.delimited import Units
from n3ic.data.flows import STANDARD_OUTPUT, Columns, stream_features
from n3ic.kernel.prediction import csv_lines
from n3ic.model.classifier import Classifier
from n3ic.util.files import new_file

T = TypeVar("T")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets run cells that begin with these


@dataclass(frozen=True)
class StreamedClasses:
    """Counts of a classified stream of flows.

    Attributes:
        rows: number of flows.
        classes: number of flows of each class, and of ``shunt`` if the model shunts flows.
    """

    rows: int
    classes: Mapping[str, int]


def predict_stream(
    model: Classifier,
    source: str | Path,
    sink: str | Path | None = STANDARD_OUTPUT,
    *,
    dataset: str | None = None,
    units: Units | None = None,
    progress: Callable[[int, Columns], object] | None = None,
) -> StreamedClasses:
    """Write class (or ``shunt``), margin and scores of each row of a table.

    Args:
        model: the network.
        source: a table, or ``-`` for standard input; see :func:`.flows.stream_features`.
        sink: the CSV file to write, complete or not at all; ``-`` for standard output; None to
            count the classes only.
        dataset: name of the data set whose layout the table has.
        units: units of the table's numbers.
        progress: called for each chunk with the number of rows so far and the chunk.

    Raises:
        DataError: the table is malformed; the error names file, line and column.
        N3icError: the file cannot be written.
    """
    names = [csv_cell(name) for name in model.verdict_names]
    header = ["row", "class", "margin", *(f"score_{name}" for name in model.classes)]
    counts = np.zeros(len(names), dtype=np.int64)
    rows = 0
    chunks = stream_features(source, model, dataset, units)
    if Path(source).is_file():  # no pipe: a thread that waits for input cannot be interrupted
        chunks = _read_ahead(chunks)
    with _open(sink) as out:
        for chunk in chunks:
            lines, chunk_counts = csv_lines(model, chunk, rows, names)
            if not rows:  # a table that cannot be read leaves no header behind
                out.write(b",".join(map(csv_cell, header)) + b"\n")
            out.write(lines)
            counts += chunk_counts
            rows = int(counts.sum())
            if progress is not None:
                progress(rows, chunk)
        out.flush()
    return StreamedClasses(rows, dict(zip(model.verdict_names, counts.tolist(), strict=True)))


def csv_cell(text: str) -> bytes:
    """A CSV cell that no spreadsheet reads as a formula, quoted if necessary."""
    line = io.StringIO()
    safe = f"'{text}" if text.startswith(_FORMULA) else text
    csv.writer(line).writerow([safe])
    return line.getvalue().removesuffix("\r\n").encode("utf-8", "replace").replace(b"\0", b"?")


class _Nowhere(io.RawIOBase):
    """A file that keeps nothing."""

    def write(self, data: object) -> int:
        return 0


def _open(sink: str | Path | None) -> AbstractContextManager[IO[bytes]]:
    if sink is None:
        return nullcontext(_Nowhere())  # type: ignore[arg-type]
    if str(sink) == STANDARD_OUTPUT:
        return nullcontext(sys.stdout.buffer)
    return new_file(sink)


def _read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Iterate while a thread prepares the next item."""
    end = object()
    with ThreadPoolExecutor(1, "n3ic-reader") as pool:
        future = pool.submit(next, items, end)
        while (item := future.result()) is not end:
            future = pool.submit(next, items, end)
            yield item  # type: ignore[misc]
