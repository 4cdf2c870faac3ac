# SPDX-License-Identifier: Apache-2.0
"""Training rows from a table in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from n3ic.data.memory import table_content
from n3ic.data.table import FlowTable, SourceFile
from n3ic.data.table_meter import carried_meter
from n3ic.data.user_table import load_own, with_positive
from n3ic.meter.table import LABEL, flow_table, read_table


def read_memory(
    table: Any,
    label: Any = None,
    positive: str = "",
    feature_names: Sequence[str] | None = None,
    tell: Callable[[str], object] | None = None,
) -> FlowTable:
    """Read a table in memory as its CSV file would be read.

    Args:
        table: as :func:`~n3ic.data.memory.table_content` takes it; one that carries its meter is
            read as metered flows.
        label: the column of the class, or, beside ``feature_names``, the class of each row.
        positive: the class that is told from all others.
        feature_names: names of the columns of a numpy array.
        tell: called with lines about what was inferred and changed.

    Raises:
        DataError: the table cannot be read.
        UsageError: there is no such label, or none is named.
    """
    named = label is None or isinstance(label, str | int)
    column = ("" if label is None else str(label)) if named else LABEL
    classes = None if named else label
    content = table_content(table, feature_names=feature_names, label=classes)
    meter = carried_meter(table)
    if meter is None:
        return load_own(content, column, positive=positive, tell=tell or (lambda line: None))
    found = flow_table(
        content.name, read_table(content), meter, label=column or LABEL, sha256=content.sha256
    )
    source = SourceFile(content.name, content.sha256, len(found), "metered flows")
    return with_positive(replace(found, sources=(source,)), positive)
