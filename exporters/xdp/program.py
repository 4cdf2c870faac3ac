# SPDX-License-Identifier: Apache-2.0
"""The metering programs in the kernel: sets models, rules and policies, and reads flows."""

from __future__ import annotations

import platform
import secrets
import struct
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.xdp import layout, libbpf
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.exporters.xdp.resident import SLOTS, SlotRule, check_slot, rule_table, swap
from n3ic.exporters.xdp.source import Table
from n3ic.exporters.xdp.verdict_lists import ACTIONS, SCOPES, Action, Limits, Scope
from n3ic.meter.compiled import ASIDE, ENDS, SECRET_BYTES
from n3ic.meter.reference import End
from n3ic.model.meter_spec import MeterSpec

Clock = Literal["kernel", "coarse", "trailer"]
CLOCKS: tuple[Clock, ...] = ("kernel", "coarse", "trailer")
METER, METER_TC, END, PASS = "n3ic_meter", "n3ic_tc", "n3ic_end", "n3ic_pass"
Hook = Literal["xdp", "tcx"]
_OPTIONS = ".rodata.options"
_AT_ONCE = 32  # keys per run of the program that ends flows
_DIGEST_BYTES = 32  # a network's value begins with its digest
SHORTEST = 14  # minimum bytes of a frame and of a test run's input

Verdict = int | Literal["shunted", "undecided", "aside", "excess"]


def lock_of(machine: str) -> int:
    """Return how CPUs release a flow: 2 is a plain store, for CPUs that keep stores in order."""
    return 2 if machine == "x86_64" else 1


def policy_index(verdict: Verdict, classes: int) -> int:
    """Return the index of a verdict's policy in the map, for a given number of classes."""
    if isinstance(verdict, int):
        return verdict
    return classes + ("shunted", "undecided", "aside", "excess").index(verdict)


def policy_value(
    action: Action,
    argument: int = 0,
    scope: Scope = "none",
    ttl: int = 0,
    from_packet: int = 0,
    times: int = 0,
    longest: int = 0,
) -> bytes:
    """Serialise a policy as ``struct policy``."""
    row = (ACTIONS.index(action), argument, SCOPES.index(scope), from_packet, ttl, times, longest)
    return np.array([row], dtype=layout.POLICY).tobytes()


class MeterPrograms(libbpf.Closing):
    """The programs of an object file, loaded into the kernel until they are closed.

    Args:
        image: bytes of the object file.
        name: name for messages.
        spec: meter that the programs were compiled for.
        structure: structure of networks that the programs were compiled for.
        clock: ``kernel`` (nanoseconds since boot), ``coarse`` (the same at the last timer tick) or
            ``trailer`` (frames carry their time and length, see :meth:`replayed`).
        events: whether decided flows are written to the ring of events.
        locked: whether a CPU locks a flow while it counts a packet. Without the lock, packets of
            one flow (with buckets, of all flows) must arrive on one CPU, or counts are lost.
        flows: size of the flow table in flows; None for that of the specification.
        table: flow table that the programs were compiled with.
        limits: limits of verdicts and new flows.
        verdicts: maximum number of verdicts that decisions bring: on flows, and on hosts and
            prefixes. The kernel forgets the least recently used ones.
        secret: 16-byte key of the buckets' hash; None for a random key. It must stay secret,
            because an attacker who knows it can make many flows fall into one bucket.
        hook: hook for which the program is loaded; ``tcx`` sees received and sent packets.
        frags: whether the XDP program accepts packets in several pieces (large frames).

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
        limits: Limits = Limits(),  # noqa: B008 - frozen
        verdicts: int = 1024,
        secret: bytes | None = None,
        hook: Hook = "xdp",
        frags: bool = True,
    ) -> None:
        self.spec, self.structure, self.table = spec, structure, table
        words = np.frombuffer(secret or secrets.token_bytes(SECRET_BYTES), np.uint64)
        entries = layout.table_entries(table, flows or spec.cache_flows)
        lock = lock_of(platform.machine()) if locked else 0
        options = np.array([(CLOCKS.index(clock), events, lock, entries, words)], layout.OPTIONS)
        sizes = {"flows": entries, "tuples": verdicts, "hosts": verdicts}
        if table == "buckets":
            sizes["tags"] = entries
        self.object = libbpf.BpfObject(
            image,
            name,
            entries=sizes,
            values={_OPTIONS: options.tobytes()},
            without=(METER if hook == "tcx" else METER_TC,),
            frags=frags,
        )
        self.program = self.object.programs[METER_TC if hook == "tcx" else METER]
        self.maps = self.object.maps
        self._event = layout.event_type(spec, structure)
        self._ring = libbpf.RingBuffer(self.maps["events"])
        self.set_rules(())
        self.maps["config"].update(0, limits.value())

    def close(self) -> None:
        """Close maps and programs; what is attached or pinned stays in the kernel."""
        self._ring.close()
        self.object.close()

    # --- settings ------------------------------------------------------------------------------

    def set_model(self, slot: int, value: bytes) -> None:
        """Put a model into a slot atomically: each packet sees either the old or the new model.

        When this returns, no packet sees the old model any more.

        Args:
            slot: number of the slot, 0 to 63.
            value: map value from :func:`~n3ic.exporters.xdp.network.values.value_bytes`.
        """
        check_slot(slot)
        swap(self.maps["models"], slot, value)

    def set_rules(self, rules: Sequence[SlotRule], otherwise: int = 0) -> None:
        """Set the rules that choose a flow's slot; all rules change at once.

        Args:
            rules: rules in order; the first match counts.
            otherwise: slot of flows without a matching rule.
        """
        swap(self.maps["dispatch"], 0, rule_table(rules, otherwise))

    # --- flows ---------------------------------------------------------------------------------

    def replayed(self, frame: bytes, length: int, time: int) -> bytes:
        """Append the trailer that the ``trailer`` clock reads to a frame.

        Args:
            frame: captured bytes of the frame.
            length: bytes of the frame on the wire.
            time: time in units of the specification.
        """
        trailer = np.array([(time, length, len(frame))], dtype=layout.TRAILER)
        return frame + trailer.tobytes()

    def flows(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return the keys of the table's flows, equal for both directions, and the flows."""
        values = self.maps["flows"].values()
        if self.table == "buckets":
            slots = np.frombuffer(values, dtype=layout.bucket_type(self.spec))["slot"]
            slots = slots[slots["key"]["address_bytes"] != 0]
            return slots["key"], slots["flow"]
        slots = np.frombuffer(values, dtype=layout.slot_type(self.spec))
        return slots["key"], slots["flow"]

    def end_idle(self, now: int) -> int:
        """End flows that exceed the idle timeout, in order of decreasing idle time.

        Returns:
            Time of the last packet of the remaining flow that is idle for longest; ``now`` if no
                flow remains.
        """
        keys, flows = self.flows()
        last = flows["last"].astype(np.int64)
        idle = now - last > self.spec.idle_timeout
        self._end(keys[idle], flows[idle], "idle", now)
        return int(last[~idle].min(initial=now))

    def end_all(self) -> None:
        """End all remaining flows, the one seen longest ago first."""
        keys, flows = self.flows()
        self._end(keys, flows, "capture", 0)

    def _end(self, keys: NDArray[np.void], flows: NDArray[np.void], why: End, now: int) -> None:
        # Oldest first, as in the reference meter: windows over decided flows depend on the order.
        order = np.lexsort((flows["touched"], flows["last"]))
        program = self.object.programs[END]
        for start in range(0, len(order), _AT_ONCE):
            some = keys[order[start : start + _AT_ONCE]]
            head = struct.pack("=QII", now, ENDS.index(why), len(some))
            program.test_run(head + some.tobytes())

    def events(self, milliseconds: int = 0) -> NDArray[np.void]:
        """Return the flows decided since the last call, array of :func:`~.layout.event_type`."""
        return np.frombuffer(b"".join(self._records(milliseconds)), dtype=self._event)

    def _records(self, milliseconds: int) -> Iterator[bytes]:
        size = self._event.itemsize
        return (record[:size] for record in self._ring.poll(milliseconds))

    # --- counters ------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """Return counters summed over all CPUs, with ignored packets and decisions by reason."""
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

    def blocked_hosts(self) -> int:
        """Return the number of blocked hosts, with expired ones until their room is needed."""
        return int(np.frombuffer(self.maps["guards"].lookup(0) or b"", layout.GUARD)["blocked"][0])

    def held(self) -> int:
        """Return the number of flows in the table; approximate under traffic."""
        if self.table == "lru":
            return self.maps["flows"].count()
        counters = self.counters()
        return counters["inserted"] - counters["removed"] - counters["replaced"]

    @property
    def room(self) -> int:
        """Maximum number of flows of the table."""
        entries = self.maps["flows"].entries
        return entries * layout.WAYS if self.table == "buckets" else entries

    def tally(self, slot: int) -> dict[str, NDArray[np.uint64]]:
        """Return a slot's decision counters: ``class``, ``shunted``, ``margin`` and ``row``."""
        kind = layout.tally_type(self.structure)
        values = [v for at in self._tallies(slot) for v in self.maps["tallies"].each_cpu(at)]
        of_cpus = np.frombuffer(b"".join(values), dtype=kind)
        return {name: of_cpus[name].sum(axis=0) for name in kind.names or ()}

    def _tallies(self, slot: int) -> range:
        """Indices of a slot's counters: flows decided by packets, then flows that were ended."""
        return range(slot, self.maps["tallies"].entries, SLOTS)
