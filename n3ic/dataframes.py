# SPDX-License-Identifier: Apache-2.0
"""Tables in memory: pandas, Polars, any Arrow stream, and numpy arrays with names.

A table is read like the CSV file that its own library writes: with the same inference, the same
integers and the same digest. Numbers, times and booleans are taken directly. Of a text column, only
the distinct cells are parsed. Decimals, times of day, times with a zone, and cells of mixed types
are written as text and parsed from there. pandas and Polars are never imported here: a table of
theirs brings its own methods.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.data.column_profile import column_names, read_cells
from n3ic.data.delimited import (
    LARGEST_WHOLE,
    SEPARATORS,
    Cells,
    Numbers,
    Sheet,
    TextColumn,
    Units,
    Wanted,
    numbers_of,
    open_sheet,
    parse_sheet,
)
from n3ic.data.file_tables import open_sheets
from n3ic.data.files import MAX_BYTES, Content, printable
from n3ic.data.flows import read_features
from n3ic.data.parquet import delimited_text
from n3ic.data.table import FlowTable, SourceFile
from n3ic.data.table_meter import METER_KEY
from n3ic.data.user_table import load_own, with_positive
from n3ic.errors import DataError, N3icWarning, UsageError
from n3ic.evaluation.plugin import WARNING, evaluations
from n3ic.kernel.prediction import predict
from n3ic.meter.capture import is_capture
from n3ic.meter.table import LABEL, flow_table, read_table
from n3ic.meter.verdicts import capture_features
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec

T = TypeVar("T")
# Types whose cells do not read as a number, a category or a time.
_NO_CELL = re.compile(
    r"timedelta|duration|(large_|fixed_size_)?(list|binary)|struct|map|array|object\(|complex|void",
    re.IGNORECASE,
)


def is_table(value: object) -> bool:
    """Whether a value is a table in memory, rather than the path of a file."""
    series = hasattr(value, "name") and hasattr(value, "dtype")  # one column alone
    arrow = isinstance(value, np.ndarray) or hasattr(value, "__arrow_c_stream__")
    return (arrow and not series) or _is_frame(value)


def _is_frame(value: object) -> bool:
    """Whether a value is a pandas or a Polars table, which writes CSV itself."""
    return hasattr(value, "columns") and (hasattr(value, "to_csv") or hasattr(value, "write_csv"))


def column_of(label: Any) -> str:
    """Name of the column that ``label`` names, or of the one that an array of classes becomes."""
    if label is None:
        return ""
    return str(label) if names_column(label) else LABEL


def names_column(label: Any) -> bool:
    """Whether a label is a column's name, rather than the class of each row."""
    return isinstance(label, str | int | np.integer)


def labelled(table: Any, label: Any) -> tuple[Any, Any]:
    """A table with names of its own and the name of its column of the class.

    A column that holds the given classes is that column; else they become a further one, of the
    name of their Series or ``label``. A table without names, and a label that names a column, stay
    as they are.

    Args:
        table: a table that :func:`is_table` accepts.
        label: a name, or the classes, shape ``(rows,)``: any array, sequence or Series.

    Raises:
        DataError: there are more or fewer classes than rows, a Series of pandas has another index
            than the table, or the table has another column of that name.
        UsageError: the label is neither a name nor classes.
    """
    import pyarrow as pa

    plain = isinstance(table, np.ndarray) and table.dtype.names is None
    if label is None or names_column(label) or plain:
        return table, label
    own_name = getattr(label, "name", None) or next(iter(getattr(label, "columns", ())), None)
    kind, name = _kind(table), own_name if isinstance(own_name, str) else LABEL
    if isinstance(label, Mapping | bytes) or not hasattr(label, "__len__"):
        raise UsageError(
            f"label: expected a column's name or one class for each row, got {label!r:.60}"
        )
    classes = np.asarray(label)
    classes = classes[:, 0] if classes.ndim == 2 and classes.shape[1] == 1 else classes
    own = table if _is_frame(table) else _arrow(table, None, None)
    if classes.shape != (len(own),):
        raise DataError(
            f"label: expected one class for each of the {len(own):,} rows, got the shape "
            f"{classes.shape}"
        )
    if hasattr(own, "iloc") and hasattr(label, "iloc") and not own.index.equals(label.index):
        raise DataError(
            "label: its index is not the table's, so its rows may be in another order; say "
            "label=y.loc[table.index], or label=y.to_numpy() if the order is the same"
        )
    names, _ = _columns(own, kind)
    for column in names if classes.size else ():
        if names.count(column) == 1 and _holds(own, names.index(column), classes):
            return own, column
    if name in names:
        raise DataError(f"{kind}: has another column {name!r}; rename it, or name the Series")
    if hasattr(own, "iloc"):
        return own.assign(**{name: classes}), name
    if _is_frame(own):
        return own.hstack(type(own)({name: classes})), name
    return own.append_column(name, pa.array(classes)), name


def _holds(table: Any, column: int, classes: NDArray[Any]) -> bool:
    """Whether a column holds the class of each row."""
    if hasattr(table, "iloc"):
        cells = table.iloc[:, column]
    else:
        cells = table[:, column] if _is_frame(table) else table.column(column)
    first_rows = min(len(classes), 100)  # most columns differ at once
    return all(
        np.array_equal(np.asarray(cells[:n]).astype(str), classes[:n].astype(str))
        for n in (first_rows, len(classes))
    )


def of_columns(columns: Mapping[str, Any]) -> Any:
    """A PyArrow table of columns by name.

    Raises:
        DataError: a column is not one-dimensional, of one type and as long as the others.
    """
    import pyarrow as pa

    arrays = []
    for name, values in columns.items():
        try:
            cells = values if hasattr(values, "__arrow_c_array__") else np.asarray(values)
            text = isinstance(cells, np.ndarray) and isinstance(values, list | tuple)
            arrays.append(pa.array(values if text else cells))
        except (pa.ArrowException, TypeError, ValueError) as error:
            problem = " ".join(str(error).split())[:200]
            raise DataError(f"column {name!r}: expected values of one type: {problem}") from error
    lengths = {str(name): len(cells) for name, cells in zip(columns, arrays, strict=True)}
    if len({*lengths.values()}) > 1:
        listed = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise DataError(f"columns: expected as many rows in each, got {listed:.200}")
    return pa.Table.from_arrays(arrays, [*lengths])


def table_sheet(
    table: Any,
    label: Any = None,
    *,
    feature_names: Sequence[str] | None = None,
    only: Collection[str] | None = None,
) -> Sheet:
    """A table as its CSV file would be read, without the index of a pandas table.

    Args:
        table: a table that :func:`is_table` accepts.
        label: the column of the class, or, for an array, the class of each row, shape ``(rows,)``.
        feature_names: names of the columns of an array of shape ``(rows, columns)``.
        only: the columns to read, by :func:`.column_profile.column_names`; None for all.

    Raises:
        DataError: a column's type cannot be written as text, or a name cannot be in a header.
        UsageError: names are missing, or given for a table that has its own.
    """
    classes = None if label is None or names_column(label) else label
    plain = isinstance(table, np.ndarray) and table.dtype.names is None
    if feature_names is not None and not plain:
        raise UsageError(
            f"{_kind(table)}: feature_names go with a numpy array; a table has names of its own"
        )
    if not plain:
        table, classes = labelled(table, label)[0], None
    if not _is_frame(table):
        table = _arrow(table, feature_names, classes)
    kind = _kind(table)
    headers, types = _columns(table, kind)
    names = column_names(headers)
    selection = [i for i, name in enumerate(names) if only is None or name in only]
    if selection and len(selection) < len(names):
        headers, types = [names[i] for i in selection], [types[i] for i in selection]
        table = _selected(table, selection, headers)
    for header, type_ in zip(headers, types, strict=True):
        if _NO_CELL.match(type_):
            timed = type_.lower().startswith(("timedelta", "duration"))
            raise DataError(
                f"{kind}, column {printable(header)!r}: expected numbers, text, booleans or times, "
                f"got {type_}; {'write it in seconds, as a number' if timed else 'drop the column'}"
            )
    # A reader guesses the separator from the header, so the header must make it a comma.
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(headers)
    first = written.getvalue().partition("\n")[0]
    if max(SEPARATORS, key=first.count) != "," or first.count('"') % 2 or "\0" in first:
        raise DataError(
            f"{kind}: expected names without line ends and other separators than commas, got "
            f"{printable(first)!r}; rename the columns"
        )
    memory = _Columns(table, kind, tuple(headers))
    return Sheet(kind, b"", ",", memory.headers, line=0, row="row", memory=memory)


def _kind(table: Any) -> str:
    """What a table is called in messages, such as ``pandas DataFrame``."""
    return f"{type(table).__module__.partition('.')[0]} {type(table).__name__}"


def _columns(table: Any, kind: str) -> tuple[list[str], list[str]]:
    """Names and types of a table's columns.

    Raises:
        DataError: the table has no columns, or their names have several levels.
    """
    if _is_frame(table):
        headers, types = [*table.columns], [*table.dtypes]
    else:
        headers, types = table.column_names, table.schema.types
    if not headers or any(isinstance(header, tuple) for header in headers):
        raise DataError(f"{kind}: expected one name per column, got {headers[:2]}; rename them")
    return [str(h).strip() for h in headers], [str(t) for t in types]


def _selected(table: Any, selection: list[int], names: list[str]) -> Any:
    """Some columns of a table, under other names."""
    if hasattr(table, "iloc"):
        return table.iloc[:, selection].set_axis(names, axis=1)
    if _is_frame(table):
        part = table[:, selection]
        part.columns = names
        return part
    return table.select(selection).rename_columns(names)


@dataclass(frozen=True, eq=False)
class _Columns:
    """The columns of a table: :class:`~n3ic.data.delimited.TableInMemory`.

    Attributes:
        source: a pandas, Polars or PyArrow table.
        kind: what it is called in messages.
        headers: names of its columns.
        known: columns that were already converted, by position.
    """

    source: Any
    kind: str
    headers: tuple[str, ...]
    known: dict[int, Any] = field(default_factory=dict)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text()).hexdigest()

    def text(self, rows: int | None = None) -> bytes:
        """The text that the table's library writes, of all rows or of the first ``rows``.

        Raises:
            DataError: a column cannot be written as text, or the text is too long.
        """
        data = self._text(self.source if rows is None else self.source[:rows])
        if len(data) > MAX_BYTES:
            raise DataError(
                f"{self.kind}: more than {MAX_BYTES:,} bytes as text; take a sample of the rows"
            )
        return data

    def _text(self, table: Any) -> bytes:
        import pyarrow as pa

        if _is_frame(table):
            pandas = hasattr(table, "to_csv")
            text = table.to_csv(index=False, lineterminator="\n") if pandas else table.write_csv()
            return bytes(text.encode("utf-8", "surrogatepass"))  # the reader reports bad UTF-8
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(table.column_names)
        try:
            cells = delimited_text([c.combine_chunks() for c in table.columns])
        except pa.ArrowException as error:
            raise DataError(f"{self.kind}: its cells cannot be written as text: {error}") from error
        return header.getvalue().encode() + cells

    def typed(self, column: int) -> Any | None:
        """A column as an Arrow array of the narrowest type; None if the whole text must be read."""
        import pyarrow as pa

        cells = self._plain(column)
        if cells is None:
            return self._part(column, _narrowest)
        if not pa.types.is_dictionary(cells.type):
            return cells
        different = [cells.dictionary, pa.nulls(len(cells.dictionary))]
        try:  # a column's type depends only on its distinct cells
            text = open_sheet(Content(self.kind, b"a,b\n" + delimited_text(different)))
            return _narrowest(text).take(cells.indices)
        except DataError:
            return None

    def table(self) -> Any | None:
        """All cells as an Arrow table, each column of the narrowest type; None to read the text."""
        import pyarrow as pa

        columns = [self.typed(i) for i in range(len(self.headers))]
        if any(column is None or not len(column) for column in columns):
            return None
        return pa.table(columns, [str(i) for i in range(len(columns))])

    def cells(self, columns: Wanted) -> Cells | None:
        """The wanted columns; None if the text must be read instead."""
        numbers: dict[str, Numbers] = {}
        texts: dict[str, TextColumn] = {}
        for i, name in enumerate(columns.names):
            if name in columns.text:
                if (text := self.spelled(i)) is None:
                    return None
                texts[name] = text
            elif name in columns.numeric:
                if (values := self._numbers(i, name, columns)) is None:
                    return None
                numbers[name] = values
        return Cells(len(self.source), numbers, texts)

    def _numbers(self, column: int, name: str, columns: Wanted) -> Numbers | None:
        """A column of numbers; None if the whole text must be read."""
        cells = self.typed(column)
        if cells is None:
            return None
        if cells.null_count and name in columns.blank_is_zero and not self._blank(column, cells):
            return self._part(column, partial(_number_column, name=name, columns=columns))
        return numbers_of(cells, name, columns)

    def _blank(self, column: int, cells: Any) -> bool:
        """Whether all nulls among the cells are written as a blank, and none as a word for NaN."""
        import pyarrow as pa

        try:
            return bool(self._arrow(column).null_count == cells.null_count)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return False

    def spelled(self, column: int) -> TextColumn | None:
        """A column of text; None if the whole text must be read."""
        import pyarrow as pa

        cells = self._plain(column)
        if cells is None or pa.types.is_floating(cells.type) or pa.types.is_temporal(cells.type):
            return self._part(column, _text_column)
        if not pa.types.is_dictionary(cells.type):
            cells = cells.cast(pa.string()).fill_null("").dictionary_encode()
        texts = tuple(text.strip() for text in cells.dictionary.to_pylist())
        return TextColumn(texts, cells.indices.to_numpy().astype(np.intp))

    def _part(self, column: int, read: Callable[[Sheet], T]) -> T | None:
        """The result of ``read`` on the text of one column; None if it fails without the others."""
        neighbour = (
            column - 1 if column else 1
        )  # one blank cell alone would be a skipped blank line
        if neighbour >= len(self.headers):
            return None
        try:
            text = self._text(_selected(self.source, [column, neighbour], ["a", "b"]))
            return read(open_sheet(Content(self.kind, text)))
        except DataError:
            return None

    def _plain(self, column: int) -> Any | None:
        import pyarrow as pa

        if column not in self.known:
            try:
                self.known[column] = self._converted(column)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                self.known[column] = None
        return self.known[column]

    def _converted(self, column: int) -> Any | None:
        """A column of int64, float64, times, or a dictionary of texts; None to read its text.

        A blank cell becomes null, or an empty text.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        cells, pandas = self._arrow(column), hasattr(self.source, "iloc")
        if pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_decode()
        kind = cells.type
        if cells.null_count == len(cells):
            return pa.nulls(len(cells))
        if pa.types.is_boolean(kind):
            cells = pc.if_else(cells, *(("True", "False") if pandas else ("true", "false")))
        if pa.types.is_string(cells.type) or kind in (pa.large_string(), pa.string_view()):
            cells = cells.cast(pa.string()).fill_null("").dictionary_encode()
            damaged = pc.any(pc.match_substring(cells.dictionary, "\0")).as_py()
            return None if damaged else cells
        if pa.types.is_integer(kind):
            large = pa.types.is_uint64(kind) and (pc.max(cells).as_py() or 0) > LARGEST_WHOLE
            return cells.cast(pa.float64() if large else pa.int64(), safe=False)
        if pa.types.is_float32(kind):
            kind, cells = pa.float64(), cells.cast(pa.string()).cast(pa.float64())  # 0.1 stays 0.1
        if pa.types.is_float64(kind):
            if not _is_frame(self.source) and pc.all(pc.equal(pc.trunc(cells), cells)).as_py():
                cells = pc.add(cells, 0.0)  # turns -0.0 into 0.0: as an integer, it is written 0
            nan = pc.is_nan(cells)
            return pc.if_else(nan, None, cells) if pc.any(nan).as_py() else cells
        whole = pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
        return cells.cast(pa.timestamp("ns")) if whole else None

    def _arrow(self, column: int) -> Any:
        """A column as an Arrow array.

        Raises:
            TypeError: the column's text may differ from the array's values.
        """
        import pyarrow as pa

        if not _is_frame(self.source):
            return self.source.column(column).combine_chunks()
        if not hasattr(self.source, "iloc"):
            return self.source[:, column].to_arrow()
        series = self.source.iloc[:, column]
        cells = pa.array(series, from_pandas=True)
        cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
        # Objects may have mixed types; only numpy's float32 is written with float32's few digits.
        kind = cells.type
        same = pa.types.is_string(kind) or pa.types.is_null(kind)
        if series.dtype == object and pa.types.is_integer(kind):
            from pandas.api.types import infer_dtype

            same = infer_dtype(series) == "integer"  # Arrow takes numpy's True among them for 1
        numpy = isinstance(series.dtype, np.dtype)
        if (series.dtype == object and not same) or (pa.types.is_float32(cells.type) and not numpy):
            raise TypeError(str(series.dtype))
        return cells


def _narrowest(sheet: Sheet) -> Any:
    return read_cells(sheet, "ab").column(0).combine_chunks()


def _number_column(sheet: Sheet, *, name: str, columns: Wanted) -> Numbers:
    alone = {name}
    return parse_sheet(
        sheet,
        (name, ""),
        header=True,
        numeric=alone,
        whole=columns.whole & alone,
        blank_is_zero=columns.blank_is_zero & alone,
        gaps=columns.gaps & alone,
    ).numbers[name]


def _text_column(sheet: Sheet) -> TextColumn:
    return parse_sheet(sheet, ("a", "b"), header=True, numeric=(), text=("a",)).texts["a"]


def _arrow(table: Any, names: Sequence[str] | None, classes: ArrayLike | None) -> Any:
    """A PyArrow table of an Arrow stream, a structured array, or an array and its columns' names.

    Raises:
        DataError: the shapes do not match, or a column holds values of several types.
        UsageError: the array has no names.
    """
    import pyarrow as pa

    kind = _kind(table)
    try:
        if not isinstance(table, np.ndarray):
            return pa.table(table)
        if table.dtype.names is not None:
            headers, columns = [*table.dtype.names], [table[name] for name in table.dtype.names]
        elif names is None:
            raise UsageError(
                f"{kind}: its columns have no names; say feature_names=[...], one each"
            )
        elif table.ndim != 2 or table.shape[1] != len(names):
            raise DataError(
                f"{kind}: expected shape (rows, {len(names)}) for {len(names)} feature_names, got "
                f"{table.shape}; name each column once"
            )
        else:
            headers, columns = [*map(str, names)], [np.ascontiguousarray(c) for c in table.T]
        if classes is not None:
            headers = [*headers, column_of(classes)]
            columns = [*columns, np.asarray(classes)]
        return pa.Table.from_arrays([pa.array(column) for column in columns], headers)
    except (pa.ArrowException, TypeError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise DataError(
            f"{kind}: expected columns of one type and one length each: {problem}"
        ) from error


def like(original: Any, columns: Mapping[str, NDArray[Any]]) -> Any:
    """Columns of shape ``(rows,)`` as a table of the same kind as ``original``, of as many rows.

    A pandas table keeps its index, an array gives a structured array, and anything else that is not
    a Polars table gives a PyArrow table.
    """
    if hasattr(original, "iloc"):
        return original.iloc[:, :0].assign(**columns)  # keeps the index
    if _is_frame(original):
        return type(original)(dict(columns))
    if isinstance(original, np.ndarray):
        kinds = [(name, values.dtype) for name, values in columns.items()]
        return np.rec.fromarrays([*columns.values()], dtype=kinds)
    import pyarrow as pa

    return pa.table(dict(columns))


def _meter(table: Any) -> MeterSpec | None:
    """The meter of a table of :func:`n3ic.extract`: Arrow has metadata, pandas ``attrs``."""
    metadata = getattr(getattr(table, "schema", None), "metadata", None) or {}
    text = metadata.get(METER_KEY) or getattr(table, "attrs", {}).get(METER_KEY.decode())
    return None if text is None else MeterSpec.from_json(text, "the table's meter")


def read_dataframe(
    table: Any,
    label: Any = None,
    *,
    positive: str = "",
    feature_names: Sequence[str] | None = None,
    notify: Callable[[str], object],
    read: Callable[..., FlowTable] = load_own,
) -> FlowTable:
    """Read labelled flows to train on; a table that carries its meter holds metered flows.

    Args:
        table: a table that :func:`is_table` accepts.
        label: as :func:`table_sheet` takes it.
        positive: the class to tell from all others; empty to tell all classes apart.
        feature_names: names of the columns of an array.
        notify: called with lines about what was inferred and changed.
        read: reads a table without a meter, as :func:`.load_own` does.

    Raises:
        DataError: the table cannot be read.
        UsageError: no label is named, or the table has no such column.
    """
    table, label = labelled(table, label)
    sheet = table_sheet(table, label, feature_names=feature_names)
    column, meter = column_of(label), _meter(table)
    if meter is None:
        return read(sheet, column, positive=positive, notify=notify)
    label_column, digest = column or LABEL, next(open_sheets(sheet)).sha256
    flows = flow_table(sheet.name, read_table(sheet), meter, label=label_column, sha256=digest)
    source = SourceFile(sheet.name, digest, len(flows), "metered flows")
    return with_positive(replace(flows, sources=(source,)), positive)


def predict_flows(
    model: Classifier,
    flows: Any,
    dataset: str | None = None,
    units: Units | None = None,
    feature_names: Sequence[str] | None = None,
) -> Any:
    """Classify flows, wherever they are; see :func:`n3ic.predict`."""
    features: Mapping[str, ArrayLike]
    if is_table(flows):
        features = table_features(model, flows, dataset, units, feature_names)
        inference = predict(model, model.encode(features))
        _warn_of_other_traffic(model, features)
        columns = {
            "class": np.array(model.verdict_names)[model.verdicts(inference.scores)],
            "margin": inference.margins,
        }
        scores = zip(model.classes, inference.scores.T, strict=True)
        return like(flows, columns | {f"score_{name}": column for name, column in scores})
    if isinstance(flows, FlowTable):
        features = flows.features
    elif isinstance(flows, Mapping):
        features = flows
    elif is_capture(flows):
        features = capture_features(model, flows)
    else:
        features = read_features(flows, model, dataset, units)
    inference = predict(model, model.encode(features))
    _warn_of_other_traffic(model, features)
    return inference


def _warn_of_other_traffic(model: Classifier, features: Mapping[str, ArrayLike]) -> None:
    """Warn if flows are unlike the training rows; see :mod:`n3ic.evaluation.plugin`."""
    columns = {name: np.asarray(features[name]) for name in model.input.features}
    watches = [watch for evaluation in evaluations().values() if (watch := evaluation.watch(model))]
    for watch in watches if len(next(iter(columns.values()))) else ():  # none without rows
        watch.add(columns)
        for line in watch.lines():
            if line.startswith(WARNING):
                warnings.warn(line.removeprefix(WARNING), N3icWarning, stacklevel=5)


def table_features(
    model: Classifier,
    flows: Any,
    dataset: str | None = None,
    units: Units | None = None,
    feature_names: Sequence[str] | None = None,
) -> Mapping[str, ArrayLike]:
    """The features that a model reads in a file or a table in memory; see :func:`n3ic.predict`."""
    if not is_table(flows):
        return read_features(flows, model, dataset, units)
    own = model.table is not None and dataset is None and units != "nic"
    read = model.table.columns if own and model.table is not None else None
    sheet = table_sheet(flows, feature_names=feature_names, only=read)
    return read_features(sheet, model, dataset, units)
