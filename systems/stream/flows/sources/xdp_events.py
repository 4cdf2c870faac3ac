# SPDX-License-Identifier: Apache-2.0
"""``xdp:INTERFACE``: flows that an interface's XDP program has metered and shunted.

They come from n3icd, with all features of the program's meter. The model may therefore differ from
the one in the kernel, as long as that meter computes the features that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from n3ic.errors import UsageError
from n3ic.meter.compiled import Records, record_type
from n3ic.meter.standard import standard_spec
from n3ic.model.classifier import SHUNT_NAME, Classifier
from n3ic.systems.stream.batch import features_read
from n3ic.systems.stream.flows.decide import row_records
from n3ic.systems.stream.flows.source import FrameBatch, Position, Source
from n3ic.systems.xdp.flow_reader import FlowReader, flow_records
from n3ic.systems.xdp.program_record import Interface, read_record

_WAIT_S = 0.1


class XdpEventSource(Source):
    """The shunted flows of an interface's XDP program.

    Args:
        interface: name of the interface.
        model: the model that decides them.

    Raises:
        UsageError: No program is loaded there, n3icd is not running, or the program does not
            compute a feature of the model.
    """

    def __init__(self, interface: str, model: Classifier) -> None:
        self.name = f"xdp:{interface}"
        self._model, where = model, Interface.named(interface)
        self._spec, self._count = read_record(where).spec, 0
        missing = [n for n in model.input.features if n not in self._spec.feature_names]
        if missing:
            raise UsageError(
                f"{self.name}: its program does not compute {missing[0]!r}, which the model "
                "reads; export a model with that meter"
            )
        self._reader = FlowReader(where)

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Yield batches of shunted flows as they come.

        Raises:
            UsageError: n3icd ended, and its program with it.
        """
        while not self._stopped:
            events = self._events()
            if len(events):
                yield FrameBatch({}, rows=self._records(events))

    def _events(self) -> Records:
        """The shunted flows that have come, with times in the meter's ticks since 1970."""
        flows = self._reader.read(_WAIT_S)
        shunted = [flow for flow in flows if flow["verdict"] == SHUNT_NAME]
        events = flow_records(shunted, self._spec, record_type(self._spec), self._count)
        self._count += len(events)
        return events

    def lost(self) -> Mapping[str, int]:
        """The number of decided flows for which n3icd's queue had no room."""
        return {f"{self.name}: queue full": self._reader.lost}

    def close(self) -> None:
        """Close the connection; the program stays loaded."""
        self._reader.close()

    def _records(self, events: Records) -> Records:
        spec = self._spec
        features = features_read(self._model, spec.feature_names, events)
        records = row_records(self._model, features)
        for name in ("source", "destination", "source_port", "destination_port", "protocol"):
            records[name] = events[name]
        for name in ("address_bytes", "why", "number", "packets"):
            records[name] = events[name]
        tick_ns = (self._model.meter or standard_spec()).tick_ns
        for name in ("first", "last"):
            records[name] = events[name].astype(np.int64) * spec.tick_ns // tick_ns
        return records


def open_source(rest: str, model: Classifier) -> XdpEventSource:
    """Open the program of an interface by the interface's name."""
    return XdpEventSource(rest, model)
