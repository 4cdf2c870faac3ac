# SPDX-License-Identifier: Apache-2.0
"""Whether the first line of a table holds names, and the names of columns without them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from n3ic.data.cell_text import NO_NUMBER, NUMBER, is_address, is_date, is_ip

_WHOLE = re.compile(r"\d{1,9}", re.ASCII)

_KDD = (
    "duration protocol_type service flag src_bytes dst_bytes land wrong_fragment urgent hot "
    "num_failed_logins logged_in num_compromised root_shell su_attempted num_root "
    "num_file_creations num_shells num_access_files num_outbound_cmds is_host_login "
    "is_guest_login count srv_count serror_rate srv_serror_rate rerror_rate srv_rerror_rate "
    "same_srv_rate diff_srv_rate srv_diff_host_rate dst_host_count dst_host_srv_count "
    "dst_host_same_srv_rate dst_host_diff_srv_rate dst_host_same_src_port_rate "
    "dst_host_srv_diff_host_rate dst_host_serror_rate dst_host_srv_serror_rate "
    "dst_host_rerror_rate dst_host_srv_rerror_rate"
)
_KDD_TEXTS = {1, 2, 3, 41}
"""Positions of protocol, service, flag and label, which are texts."""
_KDD_LAYOUTS = {
    41: ("KDD Cup 1999 without labels", ()),
    42: ("KDD Cup 1999", ("label",)),
    43: ("NSL-KDD", ("label", "difficulty")),
}


def names_without_header(
    first: Sequence[str], below: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], str] | None:
    """Names for the columns of a table whose first line is a flow, and whose names they are.

    Args:
        first: the cells of the first line, stripped.
        below: some of the lines below it.

    Returns:
        The names, and the layout that has them (empty for numbered columns); None if the first
        line holds names.
    """
    rows = [row for row in below if len(row) == len(first) and tuple(row) != tuple(first)]
    if _has_reader(first) or not _is_flow(first, rows):
        return None
    if known := _kdd(first):
        return known
    return tuple(f"column_{i}" for i in range(1, len(first) + 1)), ""


def _is_flow(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    values = [i for i, cell in enumerate(first) if _is_value(cell)]
    texts = [i for i, cell in enumerate(first) if i not in {*values} and cell not in NO_NUMBER]
    if not values or any(_share_of_values(rows, i) < 0.9 for i in values):
        return False
    if any(first[i] == row[i].strip() for i in texts for row in rows):
        return True  # a name does not recur below itself, but a protocol does
    whole = [int(first[i]) for i in values if _WHOLE.fullmatch(first[i])]
    rising = all(a < b for a, b in pairwise(whole))
    if len(whole) == len(values) and rising and len(values) > 1:
        return False  # names that count, as of a matrix or of a histogram
    return len(values) >= len(first) / 2


def _is_value(cell: str) -> bool:
    return bool(NUMBER.fullmatch(cell)) or is_address(cell) or is_date(cell)


def _has_reader(first: Sequence[str]) -> bool:
    """Whether a data set reads the layout without names itself: UNSW-NB15's raw files."""
    return len(first) == 49 and is_ip(first[0]) and is_ip(first[2])


def _share_of_values(rows: Sequence[Sequence[str]], column: int) -> float:
    cells = [row[column].strip() for row in rows]
    return sum(_is_value(c) or c in NO_NUMBER for c in cells) / len(cells) if cells else 1.0


def _kdd(first: Sequence[str]) -> tuple[tuple[str, ...], str] | None:
    if len(first) not in _KDD_LAYOUTS or first[1].lower() not in ("tcp", "udp", "icmp"):
        return None
    if not all(NUMBER.fullmatch(c) for i, c in enumerate(first) if i not in _KDD_TEXTS):
        return None
    layout, more = _KDD_LAYOUTS[len(first)]
    return (*_KDD.split(), *more), layout
