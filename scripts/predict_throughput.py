# SPDX-License-Identifier: Apache-2.0
"""Rows per second of `n3ic predict` from Parquet and CSV, and of its parts.

    python scripts/predict_throughput.py MODEL.n3ic [ROWS]

For one random table in several formats, it prints the rows per second of the whole way to CSV, the
peak memory, and the rates of reading alone and of the kernel alone. For tables in memory, it prints
the time of a row beside that of the CSV file.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from pyarrow import csv

from n3ic.data.flows import CHUNK_ROWS, stream_features, write_features
from n3ic.data.streaming import predict_stream
from n3ic.dataframes import predict_flows
from n3ic.kernel.prediction import csv_lines
from n3ic.model.network import BinaryModel


def clock(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and CPU seconds, the best of three runs."""
    best = (float("inf"), float("inf"))
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        best = min(best, (time.perf_counter() - wall, time.process_time() - cpu))
    return best


def _read(table: Path, model: BinaryModel) -> None:
    for _ in stream_features(table, model):
        pass


def _tables_in_memory(model: BinaryModel, table: Path, of_file: float) -> None:
    """Print the time of a row of each kind of table, and its ratio to seconds of a file's row."""
    arrow = csv.read_csv(table, csv.ReadOptions(skip_rows=1))  # below the line of units
    for frame in (arrow.to_pandas(), pl.from_arrow(arrow), arrow):
        wall, _ = clock(partial(predict_flows, model, frame, units="nic"))
        of_row = wall / arrow.num_rows
        print(f"{_kind(frame)}: {of_row * 1e6:.2f} us a row, {of_row / of_file:.2f} of the file's")


def _kind(table: object) -> str:
    return f"{type(table).__module__.partition('.')[0]} {type(table).__name__}"


def main(path: str, rows: int) -> None:
    """Print the table."""
    model = BinaryModel.load(path)
    rng = np.random.default_rng(0)
    clamps = {f.feature: f.clamp for f in model.input.fields}

    def chunk(n: int) -> dict[str, np.ndarray]:
        return {f: rng.integers(0, c, n, dtype=np.uint32) for f, c in clamps.items()}

    def chunks(total: int) -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, total, CHUNK_ROWS):
            yield chunk(min(CHUNK_ROWS, total - start))

    print(f"{model.shape_text}, {len(clamps)} features, {rows:,} rows")
    one = chunk(CHUNK_ROWS)
    names = [name.encode() for name in model.classes]
    kernel, _ = clock(lambda: csv_lines(model, one, 0, names))
    print(f"kernel and CSV text alone: {kernel / CHUNK_ROWS * 1e9:.0f} ns a row, one core")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("flows.parquet", "flows.csv"):
            table = Path(folder) / name
            write_features(table, chunks(rows))
            read, _ = clock(partial(_read, table, model))
            out = Path(folder) / "out.csv"
            wall, cpu = clock(partial(predict_stream, model, table, out))
            print(
                f"{name}: {rows / wall / 1e6:.2f} million rows a second by the wall, "
                f"{rows / cpu / 1e6:.2f} a CPU second (reading {read / wall:.0%} of the time)"
            )
            if name == "flows.csv":
                _tables_in_memory(model, table, wall / rows)
            table.unlink()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2_000_000)
