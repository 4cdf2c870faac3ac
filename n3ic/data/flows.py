# SPDX-License-Identifier: Apache-2.0
"""Tables of flows to classify: the features that a model reads, from CSV or Parquet.

The numbers of a table are in one of two units: a NIC's (integers, such as microseconds) or those of
the data set's files (such as seconds). A CSV file names its units in its first line, ``#
n3ic-units: nic`` or ``# n3ic-units: source``, a Parquet file in the entry ``n3ic-units`` of its
schema's metadata. A table that does not name them, and could be in either, is refused.
"""

from __future__ import annotations

import csv
import io
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from n3ic import plugins
from n3ic.data.catalogue_dataset import CatalogueDataSet
from n3ic.data.dataset import DataSet, data_set
from n3ic.data.delimited import (
    LARGEST_WHOLE,
    Sheet,
    Units,
    check_header,
    parse_sheet,
    remarks_of,
    stream_sheets,
)
from n3ic.data.files import checked_text, decompress, find_tables, read_contents
from n3ic.data.number_marks import Mark
from n3ic.data.parquet import UNITS_KEY, open_parquet, parquet_batches, parquet_sheets, units_of
from n3ic.data.table_meter import other_meter
from n3ic.data.user_table import OWN, UserTable
from n3ic.errors import DataError, N3icWarning, did_you_mean
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import UINT32_MAX, Field, to_integer
from n3ic.util.files import new_file

if TYPE_CHECKING:
    import pyarrow as pa

Columns = Mapping[str, NDArray[np.integer[Any]]]
"""Integer features in a NIC's units: an array of shape ``(rows,)`` each, 0 to 2^32 - 1."""

STANDARD_INPUT = STANDARD_OUTPUT = "-"
CHUNK_ROWS = 1 << 16
_FLOAT = float(np.finfo(np.float64).max)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


def read_features(
    path: str | Path | Sheet,
    model: Classifier,
    dataset: str | None = None,
    units: Units | None = None,
) -> Mapping[str, NDArray[np.int64]]:
    """Integer features of every row of a table; see :func:`stream_features`.

    Returns:
        int64 array of shape ``(rows,)`` per feature.
    """
    chunks = list(stream_features(path, model, dataset, units))
    return {
        name: np.concatenate([chunk[name] for chunk in chunks]).astype(np.int64)
        for name in model.input.features
    }


def stream_features(
    path: str | Path | Sheet,
    model: Classifier,
    dataset: str | None = None,
    units: Units | None = None,
    *,
    chunk_rows: int = CHUNK_ROWS,
) -> Iterator[Columns]:
    """Integer features of a table of any size, chunk by chunk in bounded memory.

    Args:
        path: a CSV file, plain or compressed with gzip, xz, bzip2 or zip; a Parquet file; a folder
            of them; a file in a format of the data set's own; ``-`` for CSV from standard input;
            or a table in memory.
        model: the model that reads the features.
        dataset: name of the data set whose layout the table has. Without it, a table with a
            column of numbers for every feature is taken as it is, and any other is read by the
            data set that the model was trained on.
        units: units of the table's numbers; None for those that the table names.
        chunk_rows: rows per chunk of a Parquet file; chunks of a CSV file are of about 8 MiB.

    Yields:
        The features that the model reads.

    Raises:
        DataError: the table lacks a feature, holds a value that is not a number, or could be in
            either unit; the error names file, line and column.
    """
    if isinstance(path, Sheet):
        yield from _read_sheets(iter([path]), model, dataset, units)
        return
    if (features := _features_of_file(path, model, dataset, units)) is not None:
        yield features
        return
    if str(path) == STANDARD_INPUT:
        name, stream = "standard input", cast(IO[bytes], sys.stdin.buffer)
        yield from _stream_text(decompress(name, stream), name, model, dataset, units)
        return
    if Path(path).is_dir():
        for file_inside in find_tables(path, UserTable.suffixes):
            yield from stream_features(file_inside, model, dataset, units, chunk_rows=chunk_rows)
        return
    try:
        with Path(path).open("rb") as file:
            head = file.peek(4)[:4]
            if head == b"PAR1":
                yield from _stream_parquet(file, str(path), model, dataset, units, chunk_rows)
            elif head in _ZIP:
                for content in read_contents(path):
                    yield from _stream_text([content.data], content.name, model, dataset, units)
            else:
                pieces = decompress(str(path), file)
                yield from _stream_text(pieces, str(path), model, dataset, units)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _features_of_file(
    path: str | Path, model: Classifier, dataset: str | None, units: Units | None
) -> Columns | None:
    """Features of a file in a format of the data set's own; None for a table with a flow a line.

    Raises:
        DataError: the file is malformed, or gives other features than the model reads.
    """
    name = dataset or model.provenance.get("data", "")
    known = name in plugins.names("n3ic.datasets")
    if units == "nic" or not known or str(path) == STANDARD_INPUT or not Path(path).exists():
        return None
    names = model.input.features
    if (content := data_set(name).file_features(Path(path), names, model.meter)) is None:
        return None
    if missing := [feature for feature in names if feature not in content.features]:
        raise DataError(
            f"{path}: these flows of {name} give no {missing[0]}, which the model reads; "
            f"they give {', '.join([*content.features][:8])}, ..."
        )
    if line := other_meter(str(path), content.meter, model.meter, names):
        warnings.warn(line, N3icWarning, stacklevel=2)
    return {feature: content.features[feature] for feature in names}


def _stream_text(
    pieces: Iterable[bytes],
    name: str,
    model: Classifier,
    dataset: str | None,
    units: Units | None,
) -> Iterator[Columns]:
    parts = iter(pieces)
    begin = checked_text(name, next(parts, b""))
    own = model.table is not None and dataset in (None, OWN)
    sheets = stream_sheets(name, chain([begin], parts), decimal=_decimal(model) if own else None)
    yield from _read_sheets(sheets, model, dataset, units)


def _decimal(model: Classifier) -> Mark | None:
    """The decimal mark of the training table; None if it had no fractions."""
    rules = model.table
    if rules is None or rules.decimal:
        return None if rules is None else cast(Mark, rules.decimal)
    return "." if any(rule.scale > 1 for rule in rules.columns.values()) else None


def _read_sheets(
    sheets: Iterator[Sheet], model: Classifier, dataset: str | None, units: Units | None
) -> Iterator[Columns]:
    first = next(sheets)
    changed: Counter[str] = Counter()
    read = _reader(first, model, dataset, units, changed)
    remarks: tuple[str, ...] = ()
    left_out: Counter[str] = Counter()
    for sheet in chain([first], sheets):
        yield read(sheet)
        remarks = remarks or sheet.remarks
        left_out.update(sheet.left_out)
    for line in remarks_of([replace(first, remarks=remarks, left_out=left_out)]):
        warnings.warn(line, N3icWarning, stacklevel=2)
    if changed:
        cells = "; ".join(f"{reason}: {n:,} cells" for reason, n in sorted(changed.items()))
        warnings.warn(f"{first.name}: {cells}", N3icWarning, stacklevel=2)


def _reader(
    sheet: Sheet,
    model: Classifier,
    dataset: str | None,
    units: Units | None,
    changed: Counter[str],
) -> Callable[[Sheet], Columns]:
    """Choose how to read the features of a table, by its first rows.

    Corrections to its cells are counted in ``changed``.
    """
    features = model.input.features
    units = _agreed(sheet.name, units, sheet.units)

    def read_as(owner: DataSet) -> Callable[[Sheet], Columns]:
        if isinstance(owner, CatalogueDataSet):
            return lambda part: owner.read_features(part, features, changed)
        return lambda part: owner.read_features(part, features)

    if model.table is not None and units != "nic" and dataset in (None, OWN):
        return read_as(UserTable(model.table))
    if dataset is None and (units == "nic" or _is_plain(sheet, features)):
        if units is None and _scaled(model):
            own = _own_data_set(model)
            if own is None or not own.has_layout(sheet):
                raise _undecided(sheet.name, model)
            return read_as(own)
        check_header(sheet, sheet.first, features)
        return lambda part: _read_plain(part, model, units)
    if units == "nic":
        raise DataError(
            f"{sheet.name}: its numbers are a NIC's integers; leave the data set {dataset} out"
        )
    dataset_used = _own_data_set(model) if dataset is None else data_set(dataset)
    if dataset_used is None:
        check_header(sheet, sheet.first, features)
        return lambda part: _read_plain(part, model, units)
    return read_as(dataset_used)


def _agreed(name: str, typed: Units | None, stated: Units | None) -> Units | None:
    if typed and stated and typed != stated:
        raise DataError(f"{name}: the table says that its units are {stated}, not {typed}")
    return typed or stated


def _is_plain(sheet: Sheet, features: Iterable[str]) -> bool:
    """Whether there is a column for every feature, and no text in the first row of any."""
    if not set(features) <= {*sheet.first}:
        return False
    _, row = next(sheet.as_text(1).rows(True), (0, []))
    cells = dict(zip(sheet.first, row, strict=False))
    return all(_is_number(cells.get(f, "0")) for f in features)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _scaled(model: Classifier) -> Field | None:
    """A field whose integers are scaled from its source unit."""
    return next((f for f in model.input.fields if f.scale != 1), None)


def _undecided(name: str, model: Classifier) -> DataError:
    field = _scaled(model)
    assert field is not None  # noqa: S101 - asked for only where there is one
    unit = field.unit or "integers"
    return DataError(
        f"{name}: is {field.feature} in {unit}, as a NIC keeps it, or in {unit} / {field.scale:g}, "
        "as the data set's files have it? Say --units nic or --units source, or begin the table "
        "with the line '# n3ic-units: nic' or '# n3ic-units: source'"
    )


def _own_data_set(model: Classifier) -> DataSet | None:
    """The data set that the model was trained on, if it reads unlabelled flows."""
    name = model.provenance.get("data", "")
    if name not in plugins.names("n3ic.datasets"):
        return None
    own = data_set(name)
    return None if type(own).read_features is DataSet.read_features else own  # None: it cannot


def _read_plain(sheet: Sheet, model: Classifier, units: Units | None) -> Columns:
    fields = {f.feature: f for f in model.input.fields}
    cells = parse_sheet(sheet, sheet.first, header=True, numeric=fields)

    def converted(field: Field) -> NDArray[np.integer[Any]]:
        return _converted(
            cells.numbers[field.feature],
            field,
            units,
            lambda row, problem: sheet.cell_error(True, row, field.feature, problem),
        )

    return {name: converted(field) for name, field in fields.items()}


def _converted(
    values: NDArray[Any],
    field: Field,
    units: Units | None,
    error: Callable[[int, str], DataError],
) -> NDArray[np.integer[Any]]:
    """Convert a column to a NIC's units; integers already in those units are kept.

    Raises:
        DataError: a value is not finite or, in a column of integers, not an integer in range.
    """
    nic = units == "nic"
    whole = nic or field.scale == 1
    kind = values.dtype.kind
    if kind == "u" and values.dtype.itemsize <= 4 and whole:  # no value can be out of range
        return values
    if kind == "f":
        values = values.astype(np.float64, copy=False)
    lowest, highest = (0, UINT32_MAX if nic else LARGEST_WHOLE) if whole else (-_FLOAT, _FLOAT)
    largest = values.max(initial=0).item()
    sound = values.min(initial=0).item() >= lowest and largest <= highest  # False for NaN
    if sound and whole and kind == "f":
        sound = bool((np.rint(values) == values).all())
    if not sound:
        good = (values >= lowest) & (values <= highest)
        if whole and kind == "f":
            good &= np.rint(values) == values
        row = int(np.argmin(good))
        expected = f"an integer from 0 to {highest:,}" if whole else "a finite number"
        raise error(row, f"expected {expected}, got {values[row]}; correct the cell")
    if whole and kind != "f":
        return (values if largest <= UINT32_MAX else np.minimum(values, UINT32_MAX)).astype(
            np.uint32
        )
    return to_integer(values, 1 if nic else field.scale)


def _stream_parquet(
    file: IO[bytes],
    name: str,
    model: Classifier,
    dataset: str | None,
    units: Units | None,
    chunk_rows: int,
) -> Iterator[Columns]:
    import pyarrow as pa

    table = open_parquet(name, file)
    schema = table.schema_arrow
    units = _agreed(name, units, units_of(name, schema))
    features = model.input.features
    missing = [f for f in features if f not in schema.names]
    undecided = bool(missing) or (units is None and _scaled(model) is not None)
    own = model.table is not None or (undecided and _own_data_set(model) is not None)
    if dataset is not None or (own and units != "nic"):
        sheets = parquet_sheets(name, file, chunk_rows=chunk_rows)
        yield from _read_sheets(sheets, model, dataset, units)
        return
    if missing:
        listed = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        hint = did_you_mean(missing[0], schema.names)
        raise DataError(f"{name}: columns missing: {listed}; {hint}the table must have each")
    for feature in features:
        kind = schema.field(feature).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise DataError(f"{name}, column {feature!r}: expected numbers, got {kind}")
    if units is None and _scaled(model):
        raise _undecided(name, model)
    start = 0
    try:
        for batch in parquet_batches(table, chunk_rows, list(features)):
            yield _read_batch(batch, name, start, model, units)
            start += batch.num_rows
    except pa.ArrowException as error:
        raise DataError(f"{name}: this Parquet file is damaged: {error}") from error
    if not start:
        raise DataError(f"{name}: no rows; expected one flow a row")


def _read_batch(
    batch: pa.RecordBatch, name: str, start: int, model: Classifier, units: Units | None
) -> Columns:
    def converted(field: Field) -> NDArray[np.integer[Any]]:
        def error(row: int, problem: str) -> DataError:
            where = f"{name}, row {start + row + 1}, column {field.feature!r}"
            return DataError(f"{where}: {problem}")

        column = batch.column(field.feature)
        if column.null_count:
            raise error(int(np.argmax(np.asarray(column.is_null()))), "expected a number, got null")
        return _converted(column.to_numpy(), field, units, error)

    return {name: converted(f) for name, f in {f.feature: f for f in model.input.fields}.items()}


def write_features(
    path: str | Path, columns: Columns | Iterable[Columns], units: Units = "nic"
) -> int:
    """Write a table of features that names its units; a complete file or none.

    ``bnn-exec`` and :func:`read_features` read it.

    Args:
        path: a CSV file; Parquet if the name ends in ``.parquet``; ``-`` for standard output.
        columns: the features, or chunks of them.
        units: units of the numbers.

    Returns:
        Number of rows.

    Raises:
        N3icError: the file cannot be written.
    """
    chunks = iter([cast(Columns, columns)] if isinstance(columns, Mapping) else columns)
    if str(path) == STANDARD_OUTPUT:
        return _write_text(sys.stdout.buffer, chunks, units)
    with new_file(path) as stream:
        if Path(path).suffix.lower() == ".parquet":
            return _write_parquet(stream, chunks, units)
        return _write_text(stream, chunks, units)


def _write_text(stream: IO[bytes], chunks: Iterator[Columns], units: Units) -> int:
    import pyarrow as pa
    from pyarrow import csv as arrow

    rows = 0
    for chunk in chunks:
        if not rows:
            header = io.StringIO()
            csv.writer(header, lineterminator="\n").writerow(chunk)
            stream.write(f"# n3ic-units: {units}\n{header.getvalue()}".encode())
        table = pa.table(dict(chunk))
        arrow.write_csv(table, stream, arrow.WriteOptions(include_header=False))
        rows += table.num_rows
    return rows


def _write_parquet(stream: IO[bytes], chunks: Iterator[Columns], units: Units) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = next(chunks)
    schema = pa.table(dict(first)).schema.with_metadata({UNITS_KEY: units})
    rows = 0
    with pq.ParquetWriter(stream, schema) as writer:
        for chunk in chain([first], chunks):
            table = pa.table(dict(chunk), schema=schema)
            writer.write_table(table)
            rows += table.num_rows
    return rows
