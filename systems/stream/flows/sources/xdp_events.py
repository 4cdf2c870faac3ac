# SPDX-License-Identifier: Apache-2.0
"""``xdp:INTERFACE``: flows that an interface's XDP program has metered and shunted.

They come from n3icd, if it runs there, or else from the program's ring buffer, with all features
of its meter. The model may therefore differ from the one in the kernel, as long as that meter
computes the features that it reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from ipaddress import ip_address

import numpy as np

from n3ic.errors import UsageError
from n3ic.exporters.xdp.layout import SHUNTED
from n3ic.meter.compiled import ENDS, Records, record_type
from n3ic.meter.standard import standard_spec
from n3ic.model.classifier import SHUNT_NAME, Classifier
from n3ic.model.meter_spec import MeterSpec
from n3ic.systems.stream.batch import features_read
from n3ic.systems.stream.flows.decide import row_records
from n3ic.systems.stream.flows.source import FrameBatch, Position, Source
from n3ic.systems.xdp.daemon import FlowReader
from n3ic.systems.xdp.deployment import attached_program, is_attached, open_program
from n3ic.systems.xdp.program_record import DaemonRecord, Interface, watching
from n3ic.systems.xdp.status import sweep

_WAIT_MS = 100
_SWEEP_S = 1.0


class _RingEvents:
    """Shunted flows from the ring buffer of a program that n3ic loaded; idle flows end meanwhile.

    Raises:
        UsageError: No program is loaded there, or another process reads its flows.
    """

    def __init__(self, interface: Interface) -> None:
        self._interface, self._swept = interface, 0.0
        with ExitStack() as stack:
            self._record, self._programs, _ = stack.enter_context(
                open_program(interface, ending=True)
            )
            stack.enter_context(watching(interface))
            self.spec = self._programs.spec
            self._lost_before = self._programs.counters()["events_lost"]
            self.lost = 0
            self._stack = stack.pop_all()

    def read(self) -> Records:
        """The shunted flows that have come, with times in the meter's ticks since 1970."""
        if not is_attached(self._interface, self._record):
            raise UsageError(
                f"xdp:{self._interface.name}: the program was removed or replaced; start again"
            )
        if time.monotonic() - self._swept > _SWEEP_S:
            sweep(self._record, self._programs)
            self.lost = self._programs.counters()["events_lost"] - self._lost_before
            self._swept = time.monotonic()
        events = self._programs.events(_WAIT_MS)
        events = np.array(events[events["verdict"] == SHUNTED])
        # The kernel's clock counts from the boot of the machine.
        booted_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        for name in ("first", "last"):
            events[name] += np.uint64(booted_ns // self.spec.tick_ns)
        return events

    def close(self) -> None:
        self._stack.close()


class _DaemonEvents:
    """Shunted flows that n3icd reports.

    Raises:
        UsageError: n3icd does not answer.
    """

    def __init__(self, interface: Interface, record: DaemonRecord, spec: MeterSpec) -> None:
        self.spec, self._count = spec, 0
        self._reader = FlowReader(interface, record)

    @property
    def lost(self) -> int:
        return self._reader.lost

    def read(self) -> Records:
        """The shunted flows that have come, with times in the meter's ticks since 1970."""
        flows = self._reader.read(_WAIT_MS / 1000)
        shunted = [flow for flow in flows if flow["verdict"] == SHUNT_NAME]
        events = np.zeros(len(shunted), record_type(self.spec))
        for event, flow in zip(events, shunted, strict=True):
            for name in ("source", "destination"):
                address = ip_address(flow[name]).packed
                event["address_bytes"] = len(address)
                event[name][: len(address)] = list(address)
            for name in ("source_port", "destination_port", "protocol", "packets"):
                event[name] = flow[name]
            for name in ("first", "last"):
                event[name] = round(flow[name] * 1e9) // self.spec.tick_ns
            event["why"], event["number"] = ENDS.index(flow["why"]), self._count
            event["features"] = [flow["features"][name] for name in self.spec.feature_names]
            self._count += 1
        return events

    def close(self) -> None:
        self._reader.close()


class XdpEventSource(Source):
    """The shunted flows of an interface's XDP program.

    Args:
        interface: name of the interface.
        model: the model that decides them.

    Raises:
        UsageError: No program is loaded there, another process reads its flows, or it does not
            compute a feature of the model.
    """

    def __init__(self, interface: str, model: Classifier) -> None:
        self.name = f"xdp:{interface}"
        self._model = model
        where = Interface.named(interface)
        record, compiled = attached_program(where)
        spec = compiled[0].meter
        missing = [name for name in model.input.features if spec and name not in spec.feature_names]
        if missing:
            raise UsageError(
                f"{self.name}: its program does not compute {missing[0]!r}, which the model "
                "reads; export a model with that meter"
            )
        self._events: _RingEvents | _DaemonEvents
        if isinstance(record, DaemonRecord) and spec is not None:
            self._events = _DaemonEvents(where, record, spec)
        else:
            self._events = _RingEvents(where)

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Yield batches of shunted flows as they come; also end idle flows, if n3icd does not.

        Raises:
            UsageError: The program was removed or replaced, or n3icd ended.
        """
        while not self._stopped:
            events = self._events.read()
            if len(events):
                yield FrameBatch({}, rows=self._records(events))

    def lost(self) -> Mapping[str, int]:
        """The number of decided flows for which the ring buffer, or n3icd's queue, had no room."""
        return {f"{self.name}: ring buffer full": self._events.lost}

    def close(self) -> None:
        """Close the maps or the connection; the program stays loaded."""
        self._events.close()

    def _records(self, events: Records) -> Records:
        spec = self._events.spec
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
