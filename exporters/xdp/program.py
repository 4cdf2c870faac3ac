"""The metering programs in the kernel: models, rules and policies put in, flows taken out."""

from __future__ import annotations

import secrets
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.xdp import layout, libbpf
from n3ic.exporters.xdp.network.structure import Structure
from n3ic.exporters.xdp.resident import Rule, check_slot, rule_table, swap
from n3ic.exporters.xdp.source import Table
from n3ic.meter.compiled import ASIDE, ENDS, SECRET_BYTES
from n3ic.meter.reference import End
from n3ic.model.metering import MeterSpec

Clock = Literal["kernel", "coarse", "trailer"]
Action = Literal["pass", "drop", "interface", "socket", "cpu", "mark"]
CLOCKS: tuple[Clock, ...] = ("kernel", "coarse", "trailer")
ACTIONS: tuple[Action, ...] = ("pass", "drop", "interface", "socket", "cpu", "mark")
METER, END, PASS = "n3ic_meter", "n3ic_end", "n3ic_pass"
# Maps that say nothing of the networks; the kernel names global data by the object, too.
_INHERITED = (
    "flows", "fragments", "dispatch", "policies", "interfaces", "sockets", "cpus", "events",
    "counted", "recent", "n3ic.bss",
)  # fmt: skip
_OPTIONS = ".rodata.options"
_AT_ONCE = 32  # keys that one run of the ending program takes
_DIGEST_BYTES = 32  # with which a network's value begins
SHORTEST = 14  # bytes of a frame, and of a test run's input

Verdict = int | Literal["shunted", "undecided", "aside"]


class MeterPrograms:
    """The programs of an object file, loaded; closed, they are gone from the kernel.

    Args:
        image: the object file's bytes.
        name: what to call it in messages.
        spec: the meter that it was compiled for.
        structure: the networks that it was compiled for.
        clock: ``kernel`` (nanoseconds since boot), ``coarse`` (the same at the last timer tick)
            or ``trailer``: frames bring their time and length, see :meth:`replayed`.
        events: whether decided flows are written to the ring of events.
        locked: whether a CPU takes a flow for itself while it counts a packet. Without, packets of
            one flow (with buckets, of all flows) must come on one CPU, or counts are lost.
        flows: flows that the table is made for; those of the specification where None.
        table: the flow table that it was compiled with.
        secret: of the buckets' hash: 16 bytes; those of the kernel's random numbers where None,
            as whoever knows them can send packets of flows that all want one bucket.
        attached: the metering program of that object file, in the kernel already: its maps are
            used, and what else was chosen when it was loaded holds.
        ending: with ``attached``, whether :meth:`end_idle` and :meth:`end_all` will be called:
            the verifier need not go through a program that nobody runs.
        succeeds: a metering program of the same meter and classes whose flows, counters, rules
            and policies this one takes over.

    Raises:
        MissingDependencyError: libbpf is not installed.
        BpfError: the kernel refuses the programs.
    """

    def __init__(
        self,
        image: bytes,
        name: str,
        spec: MeterSpec,
        structure: Structure,
        *,
        clock: Clock = "kernel",
        events: bool = True,
        locked: bool = True,
        flows: int | None = None,
        table: Table = "lru",
        secret: bytes | None = None,
        attached: libbpf.Program | None = None,
        ending: bool = True,
        succeeds: libbpf.Program | None = None,
    ) -> None:
        self.spec, self.structure, self.table = spec, structure, table
        before = attached or succeeds
        with ExitStack() as stack:
            shares = [stack.enter_context(m) for m in before.maps()] if before else []
            words = np.frombuffer(secret or secrets.token_bytes(SECRET_BYTES), np.uint64)
            entries = layout.table_entries(table, flows or spec.cache_flows)
            for m in shares:  # the successor finds flows where they are
                if m.name == _OPTIONS and table == "buckets":
                    last = np.frombuffer(m.lookup(0) or b"", layout.OPTIONS)[0]
                    words, entries = last["secret"], int(last["buckets"])
            chosen = (CLOCKS.index(clock), events, locked, entries, words)
            options = np.array([chosen], dtype=layout.OPTIONS)
            self.object = libbpf.Object(
                image,
                name,
                entries={} if before else {"flows": entries},
                values={} if attached else {_OPTIONS: options.tobytes()},
                shares=shares if attached else [m for m in shares if m.name in _INHERITED],
                without=(METER, PASS, *(() if ending else (END,))) if attached else (),
            )
        self.program = attached or self.object.programs[METER]
        self.maps = self.object.maps
        self._flow = layout.flow_type(spec)
        self._event = layout.event_type(spec, structure)
        self._ring = libbpf.RingBuffer(self.maps["events"])
        if before is None:
            self.set_rules(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the maps and programs back; what is attached or pinned stays."""
        self._ring.close()
        self.object.close()

    # --- what user space says ------------------------------------------------------------------

    def set_model(self, slot: int, value: bytes) -> None:
        """Put a model into a slot; packets see the old one or the new one, whole.

        When this returns, no packet sees the old one any more.

        Args:
            slot: 0 to 63.
            value: as :func:`~n3ic.exporters.xdp.network.values.value_bytes` gives it.
        """
        check_slot(slot)
        swap(self.maps["models"], slot, value)

    def digests(self) -> dict[int, str]:
        """SHA-256 of the models that are resident, by slot."""
        out = {}
        for slot in range(layout.SLOTS):
            number = self.maps["models"].lookup(slot)
            if number is not None:
                with libbpf.map_by_id(int.from_bytes(number, sys.byteorder)) as inner:
                    out[slot] = (inner.lookup(0) or b"")[:_DIGEST_BYTES].hex()
        return out

    def set_rules(self, rules: Sequence[Rule], otherwise: int = 0) -> None:
        """Say which flows are decided by the model of which slot; all rules change at once.

        Args:
            rules: the first that a flow agrees with counts.
            otherwise: the slot of all other flows.
        """
        swap(self.maps["dispatch"], 0, rule_table(rules, otherwise))

    def set_policy(self, verdict: Verdict, action: Action, argument: int = 0) -> None:
        """Say what is done with the packets of flows of a verdict.

        Args:
            verdict: a class, ``shunted`` (margin below the model's threshold), ``undecided`` or
                ``aside`` (packets of no flow).
            action: ``pass`` to the stack, ``drop``, redirect to an ``interface``, an AF_XDP
                ``socket`` or a ``cpu``, or ``mark``: 4 bytes of metadata for the stack's programs.
            argument: index in the map of interfaces, sockets (that of queue 0) or CPUs; the mark.
        """
        classes = self.structure.classes
        others = {"shunted": classes, "undecided": classes + 1, "aside": classes + 2}
        index = verdict if isinstance(verdict, int) else others[verdict]
        value = np.array([(ACTIONS.index(action), argument)], dtype=layout.POLICY)
        self.maps["policies"].update(index, value.tobytes())

    # --- flows ---------------------------------------------------------------------------------

    def replayed(self, frame: bytes, length: int, time: int) -> bytes:
        """A frame with the trailer that the ``trailer`` clock reads.

        Args:
            frame: its captured bytes.
            length: bytes of the frame on the wire.
            time: in units of the specification.
        """
        trailer = np.array([(time, length, len(frame))], dtype=layout.TRAILER)
        return frame + trailer.tobytes()

    def flows(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """The table's keys, as both directions of a flow have them, and its flows."""
        items = list(self.maps["flows"].items())
        if self.table == "buckets":
            kind = layout.bucket_type(self.spec)
            buckets = np.frombuffer(b"".join(v for _, v in items), dtype=kind)
            slots = buckets["slot"][buckets["tag"] != 0]
            return slots["key"], slots["flow"]
        keys = np.frombuffer(b"".join(k for k, _ in items), dtype=layout.KEY)
        return keys, np.frombuffer(b"".join(v for _, v in items), dtype=self._flow)

    def end_idle(self, now: int) -> int:
        """End flows that have been idle for too long, the one idle for longest first.

        Returns:
            The time of the last packet of the flow that is idle for longest now; ``now`` where
            there is none.
        """
        keys, flows = self.flows()
        last = flows["last"].astype(np.int64)
        idle = now - last > self.spec.idle_timeout
        self._end(keys[idle], flows[idle], "idle", now)
        return int(last[~idle].min(initial=now))

    def end_all(self) -> None:
        """End the flows that are left, the one seen longest ago first."""
        keys, flows = self.flows()
        self._end(keys, flows, "capture", 0)

    def _end(self, keys: NDArray[np.void], flows: NDArray[np.void], why: End, now: int) -> None:
        order = np.lexsort((flows["touched"], flows["last"]))
        program = self.object.programs[END]
        for start in range(0, len(order), _AT_ONCE):
            some = keys[order[start : start + _AT_ONCE]]
            head = struct.pack("=QII", now, ENDS.index(why), len(some))
            program.test_run(head + some.tobytes())

    def events(self, milliseconds: int = 0) -> NDArray[np.void]:
        """Flows decided since the last call: array of :func:`~.layout.event_type`."""
        return np.frombuffer(b"".join(self._records(milliseconds)), dtype=self._event)

    def _records(self, milliseconds: int) -> Iterator[bytes]:
        size = self._event.itemsize
        return (record[:size] for record in self._ring.poll(milliseconds))

    # --- counters ------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """Counters of all CPUs, those of packets put aside by reason, of decisions by reason."""
        counted = self.maps["counted"]
        of_cpus = [value for user in range(counted.entries) for value in counted.each_cpu(user)]
        total = np.frombuffer(b"".join(of_cpus), dtype=layout.COUNTERS)
        out: dict[str, int] = {}
        for name in layout.COUNTERS.names or ():
            value = total[name].sum(axis=0)
            if name in ("aside", "decided"):
                names = ASIDE if name == "aside" else (f"decided: {why}" for why in ENDS)
                out |= dict(zip(names, value.tolist(), strict=True))
            else:
                out[name] = int(value)
        return out

    def held(self) -> int:
        """How many flows are in the table; about, under traffic."""
        if self.table == "lru":
            return self.maps["flows"].count()
        counters = self.counters()
        return counters["inserted"] - counters["removed"] - counters["replaced"]

    @property
    def room(self) -> int:
        """How many flows the table holds at most."""
        entries = self.maps["flows"].entries
        return entries * layout.WAYS if self.table == "buckets" else entries

    def tally(self, slot: int) -> dict[str, NDArray[np.uint64]]:
        """Decisions of a slot's models: by ``class``, ``shunted``, ``margin`` and ``row``."""
        kind = layout.tally_type(self.structure)
        values = [v for at in self._tallies(slot) for v in self.maps["tallies"].each_cpu(at)]
        of_cpus = np.frombuffer(b"".join(values), dtype=kind)
        return {name: of_cpus[name].sum(axis=0) for name in kind.names or ()}

    def clear_tally(self, slot: int) -> None:
        """Begin a slot's counters anew; what is decided meanwhile may be missing in them."""
        tallies = self.maps["tallies"]
        for at in self._tallies(slot):
            tallies.update(at, bytes(tallies.value_bytes))

    def _tallies(self, slot: int) -> range:
        """Where a slot's counters are: those of packets, then those of flows that were ended."""
        return range(slot, self.maps["tallies"].entries, layout.SLOTS)
