# SPDX-License-Identifier: Apache-2.0
"""Rows of predictions, as a stream writes them."""

import csv
import io

from n3ic.meter.verdicts import predict_capture


def predicted(model, path):
    """Rows of ``n3ic predict`` as a stream writes them."""
    out = path.parent / "predicted.csv"
    predict_capture(model, path, out)
    text = {"source", "destination", "decided", "class"}
    rows = list(csv.reader(io.StringIO(out.read_text())))
    head = rows[0]
    return [
        {
            # CSV has an apostrophe before what a spreadsheet would run
            name: cell.removeprefix("'") if name in text else int(cell)
            for name, cell in zip(head, row, strict=True)
        }
        for row in rows[1:]
    ]
