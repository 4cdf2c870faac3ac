# SPDX-License-Identifier: Apache-2.0
"""Split a table into rows for training, for validation, and for a single test.

A network is trained on the first, chosen on the second, and reported on the third::

    parts = split(table, "random", seed=0)  # as n3ic.train splits it
    train, test = table.rows(parts.train), table.rows(parts.test)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import FlowTable
from n3ic.errors import DataError, needed

if TYPE_CHECKING:
    import pyarrow as pa

SplitProtocol = Literal["random", "partition", "time", "conversation"]
PROTOCOLS: tuple[SplitProtocol, ...] = get_args(SplitProtocol)
TEST_SHARE = 0.1
TIME_TEST_SHARE = 0.2
VALIDATION_SHARE = 0.1
CONVERSATION_FOLDS = 5
MIN_ROWS = 50
_ROW = "\0row"  # no feature has this name


@dataclass(frozen=True, eq=False)
class Split:
    """Row indices, int64, disjoint; test rows are used only once."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def protocols_of(table: FlowTable) -> tuple[SplitProtocol, ...]:
    """The protocols that a table allows."""
    out: list[SplitProtocol] = ["random"]
    if table.partition is not None and {"train", "test"} <= set(np.unique(table.partition)):
        out.append("partition")
    if table.time_order and table.flow is None:  # a cut in time would divide flows
        out.append("time")
    if table.conversation is not None and _enough(table.conversation):
        out.append("conversation")
    return tuple(out)


def _enough(conversation: NDArray[np.int64]) -> bool:
    return len(np.unique(conversation)) >= CONVERSATION_FOLDS


def split(table: FlowTable, protocol: SplitProtocol, seed: int) -> Split:
    """Split a table.

    Args:
        table: the flows.
        protocol: ``random`` tests on a stratified tenth; ``partition`` on the publisher's
            test partition; ``time`` on the last fifth; ``conversation`` on the conversations
            of one of five folds, see :func:`conversation_folds`. The validation rows are a
            stratified tenth of the rest, or the last for ``time``. A flow's rows stay together.
        seed: seed of the shuffling; for ``conversation`` also the number of the test fold, so
            that five seeds in a row test every conversation once.

    Raises:
        DataError: the table is too small, or lacks a partition, time order or conversations.
        MissingDependencyError: ``conversation`` needs scikit-learn, which is not installed.
    """
    if len(table) < MIN_ROWS:
        raise DataError(f"{len(table)} rows are too few to train and test on; {MIN_ROWS} needed")
    if protocol not in protocols_of(table):
        need = {
            "partition": "rows of the publisher's train and of its test partition",
            "time": "rows in time order",
            "conversation": f"rows of {CONVERSATION_FOLDS} conversations or more",
            "random": "rows",
        }[protocol]
        raise DataError(
            f"protocol {protocol!r} needs {need}, which {table.name} does not have; "
            f"it allows {', '.join(protocols_of(table))}"
        )
    every = np.arange(len(table))
    if protocol == "time":
        # The latest rows test and those before validate: training never sees the future.
        cut = round(len(table) * (1 - TIME_TEST_SHARE))
        hold = round(cut * (1 - VALIDATION_SHARE))
        return Split(every[:hold], every[hold:cut], every[cut:])
    if protocol == "partition":
        assert table.partition is not None  # noqa: S101 - protocols_of checks it
        training_rows, test = every[table.partition == "train"], every[table.partition == "test"]
    elif protocol == "conversation":
        tested = conversation_folds(table) == seed % CONVERSATION_FOLDS
        training_rows, test = every[~tested], every[tested]
    else:
        training_rows, test = _by_flow(table, every, TEST_SHARE, seed)
    train, validation = _by_flow(table, training_rows, VALIDATION_SHARE, seed + 1)
    return Split(train, validation, test)


def _by_flow(
    table: FlowTable, rows: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Like :func:`stratified`, by whole flows, since a flow's later rows resemble its earlier."""
    if table.flow is None:
        return stratified(rows, table.label[rows], share, seed)
    of = table.flow[rows]
    first = rows[np.unique(of, return_index=True)[1]]
    _, small = stratified(first, table.label[first], share, seed)
    in_small = np.isin(of, table.flow[small])
    return rows[~in_small], rows[in_small]


def conversation_folds(table: FlowTable) -> NDArray[np.int64]:
    """Fold of each row, such that a conversation is in one fold and classes are balanced.

    Rows of one conversation resemble each other. If some of them were in the training set, the
    network would be tested on rows that it has nearly seen.

    Args:
        table: flows whose conversations are known.

    Returns:
        int64 array of shape ``(rows,)``, 0 to 4; the same for the same table.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    with needed("splitting by conversation"):
        from sklearn.model_selection import StratifiedGroupKFold
    out = np.zeros(len(table), dtype=np.int64)
    with warnings.catch_warnings():  # scikit-learn warns of classes with fewer rows than folds
        warnings.simplefilter("ignore", UserWarning)
        folds = StratifiedGroupKFold(CONVERSATION_FOLDS).split(out, table.label, table.conversation)
        for fold, (_, rows) in enumerate(folds):
            out[rows] = fold
    return out


def stratified(
    index: NDArray[np.int64], label: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide rows so that both parts hold the classes in equal shares, in row order.

    Returns:
        The larger and the smaller part, sorted.
    """
    rng = np.random.default_rng(seed)
    selections = []
    for c in np.unique(label):
        # Per class, so that a rare class keeps its share in both parts.
        rows = rng.permutation(index[label == c])
        selections.append(rows[: round(len(rows) * share)])
    small = np.sort(np.concatenate(selections))
    return np.setdiff1d(index, small, assume_unique=True), small


def seen_in_training(
    table: FlowTable, train: NDArray[np.int64], test: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether each test row equals a training row in every feature, bool of shape ``(rows,)``."""
    import pyarrow as pa

    flows = arrow_table(table)
    tested = flows.take(test).append_column(_ROW, pa.array(np.arange(len(test))))
    repeated = tested.join(flows.take(train), keys=flows.column_names, join_type="left semi")
    out = np.zeros(len(test), dtype=np.bool_)
    out[repeated[_ROW].to_numpy()] = True
    return out


def duplicate_share(table: FlowTable) -> float:
    """Share of rows that repeat an earlier row, label included."""
    return 1 - distinct_rows(arrow_table(table, table.label)) / max(1, len(table))


def arrow_table(table: FlowTable, *more: NDArray[np.generic]) -> pa.Table:
    """The features as an Arrow table, with further columns beside them."""
    import pyarrow as pa

    columns = dict(table.features) | {f"{_ROW}{i}": column for i, column in enumerate(more)}
    return pa.table(columns)


def distinct_rows(rows: pa.Table) -> int:
    """Number of different rows of an Arrow table."""
    return int(rows.group_by(rows.column_names).aggregate([]).num_rows)
