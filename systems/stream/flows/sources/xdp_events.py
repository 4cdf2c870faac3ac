# SPDX-License-Identifier: Apache-2.0
"""``xdp:INTERFACE``: flows that an interface's XDP program has metered and shunted.

They come from the program's ring buffer with all features of its meter. The model may therefore
differ from the one in the kernel, as long as that meter computes the features that it reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import numpy as np

from n3ic.errors import UsageError
from n3ic.exporters.xdp.layout import SHUNTED
from n3ic.meter.compiled import Records
from n3ic.meter.standard import standard_spec
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.batch import features_read
from n3ic.systems.stream.flows.decide import row_records
from n3ic.systems.stream.flows.source import FrameBatch, Position
from n3ic.systems.xdp.daemon_requests import runs
from n3ic.systems.xdp.deployment import is_attached, open_program
from n3ic.systems.xdp.program_record import DaemonRecord, Interface, watching
from n3ic.systems.xdp.status import sweep

_WAIT_MS = 100
_SWEEP_S = 1.0


class XdpEventSource:
    """The shunted flows of an interface's XDP program.

    Args:
        interface: name of the interface.
        model: the model that decides them.

    Raises:
        UsageError: No program is loaded there, another process reads its flows, or it does not
            compute a feature of the model.
    """

    live = True
    link: int | None = None

    def __init__(self, interface: str, model: Classifier) -> None:
        self.name = f"xdp:{interface}"
        self._model = model
        self._stopped = False
        self._interface = Interface.named(interface)
        with ExitStack() as stack:
            self._record, self._programs, _ = stack.enter_context(
                open_program(self._interface, ending=True)
            )
            if isinstance(self._record, DaemonRecord) and runs(self._record):
                raise UsageError(
                    f"{self.name}: n3icd reads the decided flows there; take its packets "
                    "(shunted:SOCKET), or end it and load the export with n3ic xdp load"
                )
            stack.enter_context(watching(self._interface))
            names = self._programs.spec.feature_names
            missing = [name for name in model.input.features if name not in names]
            if missing:
                raise UsageError(
                    f"{self.name}: its program does not compute {missing[0]!r}, which the model "
                    "reads; export a model with that meter"
                )
            self._lost_before = self._programs.counters()["events_lost"]
            self._lost = 0
            self._stack = stack.pop_all()

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Yield batches of shunted flows as they come; also end idle flows.

        Raises:
            UsageError: The program was removed or replaced.
        """
        swept = 0.0
        while not self._stopped:
            if not is_attached(self._interface, self._record):
                raise UsageError(f"{self.name}: the program was removed or replaced; start again")
            if time.monotonic() - swept > _SWEEP_S:
                sweep(self._record, self._programs)
                self._lost = self._programs.counters()["events_lost"] - self._lost_before
                swept = time.monotonic()
            events = self._programs.events(_WAIT_MS)
            events = events[events["verdict"] == SHUNTED]
            if len(events):
                yield FrameBatch({}, rows=self._records(events))

    def stop(self) -> None:
        """End :meth:`batches` within a tenth of a second."""
        self._stopped = True

    def lost(self) -> Mapping[str, int]:
        """The number of decided flows for which the ring buffer had no room."""
        return {f"{self.name}: ring buffer full": self._lost}

    def close(self) -> None:
        """Close the maps; the program stays loaded."""
        self._stack.close()

    def _records(self, events: Records) -> Records:
        features = features_read(self._model, self._programs.spec.feature_names, events)
        records = row_records(self._model, features)
        for name in ("source", "destination", "source_port", "destination_port", "protocol"):
            records[name] = events[name]
        for name in ("address_bytes", "why", "number", "packets"):
            records[name] = events[name]
        # The kernel's clock counts from the boot of the machine, in ticks of the program's meter.
        booted_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        tick_ns = (self._model.meter or standard_spec()).tick_ns
        for name in ("first", "last"):
            times = events[name].astype(np.int64) * self._programs.spec.tick_ns + booted_ns
            records[name] = times // tick_ns
        return records


def open_source(rest: str, model: Classifier) -> XdpEventSource:
    """Open the program of an interface by the interface's name."""
    return XdpEventSource(rest, model)
