# SPDX-License-Identifier: Apache-2.0
"""The image of a card that holds columns of a matrix of integers.

It differs from :mod:`~n3ic.systems.cluster.netfpga.image` in

==  ==============================================================================
0   address 48 rows of weights, 49 windows of an input, 50 slices between them
1   weights: bits 27:8 row, 7:0 word; in a row 16 weights of each of some columns
2   bits 27:8 row; word 0 the number of the input slice that the row multiplies, or
    words 0-3 one of 8 bits for each of the 16 weights; in the word behind, bit 0
    marks the last row of these columns
==  ==============================================================================

and in the settings 12, the columns of the whole matrix, and 14, the numbers in the last packet of a
row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.dense import MATRIX_SHARE, WindowedMatrix
from n3ic.systems.cluster.kernels import GemmKernel
from n3ic.systems.cluster.matrices import LANES
from n3ic.systems.cluster.netfpga.image import (
    LEAVING_SCORES,
    EndpointAddress,
    NodeImage,
    NodeSize,
    address_bits,
    card_status,
    link_settings,
    relay_image,
    setting_writes,
    writes_of,
)
from n3ic.systems.cluster.protocol import HOME, VALUES_PER_PACKET, DataId
from n3ic.systems.cluster.sparse import Combine

MAX_NUMBERS = 1 << 12
"""Maximum numbers of a row: a slice's number has 8 bits."""
MAX_WEIGHTS = 1 << 22
"""Bytes of weights that fit the card beside its other functions."""
MAX_COLUMN_BITS = 512
"""Maximum of columns at once times bits of a weight: a row has at most 256 words."""
_WEIGHT_BITS = (8, 16, 32)
_SETTINGS = 48
_DENSE = 0.5
_MOST_ROWS = 1 << 16  # windows, columns: 16 bits each


@dataclass(frozen=True)
class MatrixSize(NodeSize):
    """Sizes of a card for matrices: memories as binary logarithms, and the array of multipliers.

    Attributes:
        columns: columns that are multiplied at once, a power of two.
        weight_w: bits of a weight: 8, 16 or 32.
        sparse: 1 if each of the 16 inputs has its own slice, else 0.
        maximum: 1 if the maximum is taken instead of the sum, else 0.
    """

    words_w: int = 8
    columns: int = 4
    weight_w: int = 8
    sparse: int = 0
    maximum: int = 0

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of ``n3ic_cluster_node``."""
        return super().parameters | {
            "GEMM": 1,
            "COLUMNS": self.columns,
            "WEIGHT_W": self.weight_w,
            "SPARSE": self.sparse,
            "MAXIMUM": self.maximum,
        }


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of weights.

    Attributes:
        weights: int64 array of shape ``(rows, columns at once, 16)``.
        slices: numbers of the slices, of shape ``(rows, 16)``.
        ends: whether a row is the last of its columns.
    """

    weights: NDArray[np.int64]
    slices: NDArray[np.int64]
    ends: NDArray[np.bool_]


def matrix_image(
    kernel: GemmKernel,
    nodes: int,
    node: int,
    *,
    own: EndpointAddress,
    predecessor: EndpointAddress,
    successor: EndpointAddress,
    resend_ms: int = 20,
    columns: int = MatrixSize.columns,
) -> NodeImage:
    """Make the image of a node of a ring with a matrix.

    Args:
        kernel: the kernel whose columns are distributed.
        nodes: number of nodes of the ring.
        node: number of the card's node.
        own: address of the card.
        predecessor: address of the endpoint that sends tasks to the card.
        successor: address of the endpoint that the card sends to.
        resend_ms: milliseconds until an unacknowledged packet is resent.
        columns: columns that are multiplied at once, a power of two.

    Raises:
        ClusterError: The card cannot hold what the kernel gives it; the error says what.
    """
    links = link_settings(node, nodes, own, predecessor, successor, resend_ms)
    share, whole = kernel.share(node, nodes), kernel.whole_matrix
    if share.start == share.end:
        return relay_image(links, kernel.digest, node)
    part = whole.columns(share.start, share.end)
    weight_w = _weight_bits(part, node)
    at_once = [1 << i for i in range(7) if (1 << i) * weight_w <= MAX_COLUMN_BITS]
    if columns not in at_once:
        raise ClusterError(f"columns at once: expected one of {at_once}, got {columns}")
    rows, sparse = _placed(part, columns, node)
    size = MatrixSize(
        row_w=max(MatrixSize.row_w, address_bits(len(rows.ends))),
        words_w=max(MatrixSize.words_w, address_bits(-(-whole.numbers // LANES) * LANES)),
        columns=columns,
        weight_w=weight_w,
        sparse=int(sparse),
        maximum=int(whole.combine is Combine.MAX),
    )
    used = rows.weights.size * weight_w // 8
    if used > MAX_WEIGHTS:
        raise ClusterError(
            f"node {node}: {used:,} bytes of weights, a card holds {MAX_WEIGHTS:,}; use more nodes"
        )
    rest = whole.numbers - (whole.packets - 1) * VALUES_PER_PACKET
    leaving = DataId.TOTALS << 24 | HOME << 16 | kernel.array << 8 | LEAVING_SCORES
    settings = [*links, leaving, whole.matrix.shape[1], share.end - share.start, rest, 0]
    status = card_status(
        kernel.digest,
        node,
        (kernel.array, share.start, share.end, 0),
        (MATRIX_SHARE, 1 << size.slot_w, whole.packets, 1),
    )
    sizes = np.array([len(rows.ends), whole.windows, whole.step // LANES], dtype=np.uint32)
    writes = [
        setting_writes(settings, status, ()),
        writes_of(0, _SETTINGS + np.arange(len(sizes)), sizes),
        _row_writes(1, _words(rows.weights.reshape(len(rows.ends), -1), weight_w)),
        _row_writes(2, _slice_words(rows, sparse=sparse)),
    ]
    return NodeImage(size, share.end - share.start, len(rows.ends), np.concatenate(writes))


def _placed(part: WindowedMatrix, columns: int, node: int) -> tuple[_Rows, bool]:
    """Place the columns of a card in rows of weights; also whether each input has its own slice."""
    if part.numbers > MAX_NUMBERS:
        raise ClusterError(
            f"node {node}: rows of {part.numbers:,} numbers, a card takes {MAX_NUMBERS:,}; divide "
            "the matrix by rows and add the products, or run the node as a process"
        )
    if part.windows > 1 and part.step % LANES:
        raise ClusterError(
            f"node {node}: windows {part.step} numbers apart; a card has them at multiples of "
            f"{LANES}"
        )
    if part.windows >= _MOST_ROWS or part.matrix.shape[1] >= _MOST_ROWS:
        raise ClusterError(f"node {node}: a card has at most {_MOST_ROWS - 1:,} columns or windows")
    whole = np.pad(
        part.matrix,
        ((0, -len(part.matrix) % LANES), (0, -part.matrix.shape[1] % columns)),
    )
    # (groups, columns at once, slices, 16)
    groups = whole.T.reshape(-1, columns, len(whole) // LANES, LANES)
    needed = (groups != 0).any(axis=1)  # (groups, slices, 16)
    # A slice's number for each input costs memory and pays for matrices that are mostly zeros.
    sparse = int(needed.sum(axis=1).max(axis=1).sum()) < _DENSE * int(needed.any(axis=2).sum())
    if not sparse:
        needed |= needed.any(axis=2, keepdims=True)
    weights, slices, ends = [], [], []
    for group, here in zip(groups, needed, strict=True):
        count = max(1, int(here.sum(axis=0).max()))  # of an input; columns of zeros need a row, too
        rows = np.zeros((count, columns, LANES), dtype=np.int64)
        numbers = np.zeros((count, LANES), dtype=np.int64)
        for lane in range(LANES):
            at = np.flatnonzero(here[:, lane])
            rows[: len(at), :, lane] = group[:, at, lane].T
            numbers[: len(at), lane] = at
        weights.append(rows)
        slices.append(numbers)
        ends.append(np.arange(count) == count - 1)
    return _Rows(np.concatenate(weights), np.concatenate(slices), np.concatenate(ends)), sparse


def _weight_bits(part: WindowedMatrix, node: int) -> int:
    """Return the bits of the narrowest weights that hold a matrix."""
    low, high = int(part.matrix.min(initial=0)), int(part.matrix.max(initial=0))
    for bits in _WEIGHT_BITS:
        if -(1 << bits - 1) <= low and high < 1 << bits - 1:
            return bits
    raise ClusterError(
        f"node {node}: weights of {low:,} to {high:,}, a card has weights of 32 bits with a sign; "
        "run the node as a process"
    )


def _words(numbers: NDArray[np.int64], bits: int) -> NDArray[np.uint32]:
    """Pack numbers of 8, 16 or 32 bits into words of 32, the first lowest, row by row."""
    return np.ascontiguousarray(numbers.astype(f"<i{bits // 8}")).view("<u4").astype(np.uint32)


def _slice_words(rows: _Rows, *, sparse: bool) -> NDArray[np.uint32]:
    """Return the words of each row's slices, and of its mark."""
    slices = rows.slices.astype(np.uint8)
    numbers = slices.view("<u4") if sparse else slices[:, :1]
    return np.concatenate([numbers, rows.ends[:, None]], axis=1).astype(np.uint32)


def _row_writes(kind: int, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the writes of words of shape ``(rows, words)``."""
    addresses = np.arange(len(words))[:, None] << 8 | np.arange(words.shape[1])
    return writes_of(kind, addresses.ravel(), words.ravel())
