# SPDX-License-Identifier: Apache-2.0
"""``FILE.jsonl`` or ``-``: one line of JSON per flow; keys are the columns of ``n3ic predict``."""

from __future__ import annotations

import sys
from pathlib import Path

from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.sink import STANDARD_OUTPUT, FileSink, Offset, StreamSink
from n3ic.systems.stream.json_rows import json_lines


class JsonLinesFile(FileSink):
    """Lines of JSON in a file, which is cut at the state's offset when the stream resumes."""

    def __init__(self, path: Path, model: StreamModel) -> None:
        super().__init__(path)
        self._model = model

    def write(self, batch: FlowBatch, first: int) -> None:
        """See :meth:`StreamSink.write`."""
        self.append(json_lines(self._model.table(batch, first)))


class JsonLinesOutput(StreamSink):
    """Lines of JSON on standard output."""

    name = STANDARD_OUTPUT

    def __init__(self, model: StreamModel) -> None:
        self._model = model

    def write(self, batch: FlowBatch, first: int) -> None:
        """See :meth:`StreamSink.write`."""
        lines = json_lines(self._model.table(batch, first))
        out = getattr(sys.stdout, "buffer", None)
        out.write(lines) if out else sys.stdout.write(str(lines, "ascii"))

    def flush(self) -> Offset:
        """See :meth:`StreamSink.flush`."""
        sys.stdout.flush()
        return {}


def open_sink(text: str, model: StreamModel) -> StreamSink:
    """Open a file, or standard output."""
    if text == STANDARD_OUTPUT:
        return JsonLinesOutput(model)
    return JsonLinesFile(Path(text), model)
