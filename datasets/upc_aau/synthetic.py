# SPDX-License-Identifier: Apache-2.0
"""Synthetic captures in the format of UPC-AAU: conversations drawn from behaviours, by seed.

All packets of one kind are drawn together, as arrays. The capture point is a link beside the local
hosts: their answers appear at once, and the answers to them appear a round trip later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.datasets.upc_aau.behaviours import (
    BEHAVIOURS,
    ApplicationTraffic,
    Exchange,
    SizeDistribution,
)
from n3ic.datasets.upc_aau.classes import CLASSES
from n3ic.datasets.upc_aau.frames import SNAP, WHOLE, Conversations, Packets, host, write_pcap
from n3ic.meter.info_labels import SYNTHETIC_MARK
from n3ic.meter.packet import ACK, FIN, PUSH, RST, SYN
from n3ic.util.files import new_directory

FLOWS, SEED = 6000, 1
CAPTURE, INFO, README = "packets_default.pcap", "packets_default.info", "README.md"
MARK = SYNTHETIC_MARK
"""Text in field 8 of a line (presumably the operating system) that marks it as synthetic."""
OTHER = "other-application"
_START_US = 1_361_750_400_000_000  # 2013-02-25
_FLOWS_PER_SECOND = 20
_SHARE_OTHER, _SHARE_UNLISTED, _SHARE_V6 = 0.03, 0.02, 0.1
_HOSTS = 3
_SEGMENT = 1448
_SERIAL_US = 120  # a full segment at 100 Mbit/s
_AT_ONCE = 10  # segments that are sent before an acknowledgement is waited for
_REACT_US = 150  # reaction time of a host beside the tap
_MAX_EXCHANGES = 400

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Part:
    """Packets of one sort, such as all acknowledgements; see :class:`.frames.Packets`.

    ``sequence`` is relative; -1 stands for the number that is due. ``end`` is the sequence number
    after the packet.
    """

    flow: Ints
    time: Ints
    outbound: Bools
    payload: Ints
    flags: Ints
    sequence: Ints
    end: Ints


def write_data(
    out: str | Path, flows: int, seed: int, *, whole: bool = False, replace: bool = False
) -> Path:
    """Write a folder with a capture and its ``.info``; the same arguments give the same bytes.

    Args:
        out: the folder.
        flows: conversations to make.
        seed: seed of the generator.
        whole: whether the capture holds whole frames, and not only the first 96 bytes of each.
        replace: whether a folder that this function wrote may be replaced.

    Raises:
        UsageError: the folder exists, or holds something else.
        N3icError: the folder cannot be written.
    """
    with new_directory(out, replace=replace, written=(CAPTURE, INFO, README)) as folder:
        conversations, packets, labels = generate(flows, seed)
        with (folder / CAPTURE).open("wb") as stream:
            write_pcap(stream, conversations, packets, WHOLE if whole else SNAP)
        (folder / INFO).write_text("".join(_info_lines(conversations, packets, labels)), "utf-8")
        (folder / README).write_text(_readme(flows, seed, len(packets.time)), "utf-8")
    return Path(out)


def generate(flows: int, seed: int) -> tuple[Conversations, Packets, list[str]]:
    """Generate conversations, their packets in time order, and their labels; empty for no line."""
    rng = np.random.default_rng(seed)
    shares = np.array([CLASSES[b.name] for b in BEHAVIOURS], dtype=float)
    kind = rng.choice(len(BEHAVIOURS), flows, p=shares / shares.sum())
    conversations = _flows(rng, kind)
    labels = np.array([b.name for b in BEHAVIOURS])[kind].astype(object)
    drawn = rng.random(flows)
    labels[drawn < _SHARE_OTHER + _SHARE_UNLISTED] = OTHER
    labels[drawn < _SHARE_UNLISTED] = ""
    return conversations, _packets(rng, kind, conversations), labels.tolist()


def _flows(rng: np.random.Generator, kind: Ints) -> Conversations:
    count = len(kind)
    inbound = _chance(rng, kind, lambda b: b.inbound)
    servers = np.array([b.servers for b in BEHAVIOURS])[kind]
    ports = np.zeros(count, dtype=np.int64)
    for i, b in enumerate(BEHAVIOURS):
        own = kind == i
        choice = (
            rng.choice(b.ports, own.sum()) if b.ports else rng.integers(1 << 14, 49152, own.sum())
        )
        ports[own] = choice
    client_port = 49152 + np.arange(count) % (65536 - 49152)
    return Conversations(
        udp=_chance(rng, kind, lambda b: b.udp),
        version_6=rng.random(count) < _SHARE_V6,
        local=rng.integers(0, _HOSTS, count),
        remote=rng.integers(0, servers),
        local_port=np.where(inbound, ports, client_port),
        remote_port=np.where(inbound, client_port, ports),
        inbound=inbound,
        hops=rng.integers(1, 20, count),
        window=rng.choice([8192, 14600, 29200, 65535], count),
        first_sequence=rng.integers(0, 1 << 32, (2, count)),
    )


def _packets(rng: np.random.Generator, kind: Ints, flows: Conversations) -> Packets:
    """Draw all packets of the conversations."""
    count = len(kind)
    tcp = ~flows.udp
    client_out = ~flows.inbound
    silent = _chance(rng, kind, lambda b: b.silent)
    start = np.sort(rng.uniform(0, count / _FLOWS_PER_SECOND, count) * 1e6).astype(np.int64)
    trip = (_draw(rng, kind, lambda b: b.round_trip) * 1e6).astype(np.int64)
    to_server = np.where(client_out, trip, _REACT_US)  # until the server's answer is seen
    to_client = np.where(client_out, _REACT_US, trip)
    means = np.array([[b.exchanges, (b.datagrams or b).exchanges] for b in BEHAVIOURS])
    exchanges = rng.geometric(1 / means[kind, flows.udp.astype(int)])
    exchanges = np.minimum(exchanges, np.where(silent, 3, _MAX_EXCHANGES))
    exchanges[silent & tcp] = 0

    of = np.repeat(np.arange(count), exchanges)  # the flow of each exchange
    request, answer = _messages(rng, kind, of, flows.udp)
    request, answer = np.maximum(request, 1), np.maximum(answer, flows.udp[of].astype(np.int64))
    answer[silent[of]] = 0
    pause = (_draw(rng, kind[of], lambda b: b.pause) * 1e6).astype(np.int64)
    think = rng.exponential(2000, len(of)).astype(np.int64)
    asking = _lasts(request, trip[of])
    answering = _lasts(answer, trip[of])
    lasts = asking + to_server[of] + think + answering + to_client[of]
    before = _running_sum(of, pause + lasts) - lasts  # a pause precedes each exchange
    handshake = np.where(tcp, to_server + to_client, 0)
    request_time = (start + handshake)[of] + before
    answered = request_time + asking + to_server[of] + think
    over = start + handshake
    np.maximum.at(over, of, answered + answering + to_client[of])

    parts = []
    for size, time, by_client in ((request, request_time, True), (answer, answered, False)):
        out = client_out if by_client else ~client_out
        data, last = _segments(of, time, size, out, trip)
        parts.append(data)
        again = rng.random(len(data.flow)) < np.array([b.loss for b in BEHAVIOURS])[kind[data.flow]]
        lost = _rows(data, again & tcp[data.flow])
        parts.append(_later(lost, np.maximum(200_000, 2 * trip[lost.flow])))
        acked = tcp[data.flow] & (last if not by_client else np.zeros(len(last), dtype=bool))
        acked |= tcp[data.flow] & (np.arange(len(last)) % 2 == 1)
        arrival = data.time + np.where(data.outbound, trip[data.flow], _REACT_US)
        parts.append(_bare(data.flow[acked], arrival[acked], ~data.outbound[acked], ACK))
    totals = [np.bincount(of, size, count).astype(np.int64) for size in (request, answer)]
    parts += _handshakes(np.flatnonzero(tcp), start, to_server, to_client, client_out, silent)
    reset = _chance(rng, kind, lambda b: b.reset)
    unended = _chance(rng, kind, lambda b: b.unended)
    ends = tcp & ~silent
    parts.append(_bare((i := np.flatnonzero(ends & reset)), over[i], client_out[i], RST | ACK))
    closing = np.flatnonzero(ends & ~reset & ~unended)
    parts += _closes(closing, over, to_server, to_client, client_out, totals)
    return _in_order(parts, flows)


def _messages(rng: np.random.Generator, kind: Ints, of: Ints, udp: Bools) -> tuple[Ints, Ints]:
    """Draw the payloads of requests and answers of all exchanges, which are grouped by flow."""
    nth = _running_sum(of, np.ones(len(of), dtype=np.int64)) - 1
    request, answer = np.zeros((2, len(of)), dtype=np.int64)
    for i, b in enumerate(BEHAVIOURS):
        own, datagram = kind[of] == i, udp[of]
        rows = {n: own & ~datagram & (nth == n) for n in range(len(b.opening))}
        plan: list[tuple[Bools, Exchange | ApplicationTraffic]] = []
        plan += [(rows[n], exchange) for n, exchange in enumerate(b.opening)]
        plan += [(own & datagram, b.datagrams or b), (own & ~datagram & (nth >= len(b.opening)), b)]
        for chosen, sizes in plan:
            request[chosen] = _values(rng, sizes.request, int(chosen.sum()))
            answer[chosen] = _values(rng, sizes.answer, int(chosen.sum()))
    return request, answer


def _values(rng: np.random.Generator, of: SizeDistribution, count: int) -> Ints:
    """Draw whole numbers from a distribution."""
    drawn = np.clip(of.median * np.exp(of.spread * rng.standard_normal(count)), of.least, of.most)
    whole: Ints = (drawn + rng.uniform(0, of.padding, count)).astype(np.int64)
    return whole


def _handshakes(
    i: Ints, start: Ints, to_server: Ints, to_client: Ints, client_out: Bools, silent: Bools
) -> list[_Part]:
    """SYN, SYN-ACK and ACK; if nobody answers, three SYNs that are one and two seconds apart."""
    out = [_bare(i, start[i], client_out[i], SYN, 0)]
    alone = i[silent[i]]
    out += [_bare(alone, start[alone] + t, client_out[alone], SYN, 0) for t in (10**6, 3 * 10**6)]
    i = i[~silent[i]]
    opened = start[i] + to_server[i]
    out.append(_bare(i, opened, ~client_out[i], SYN | ACK, 0))
    out.append(_bare(i, opened + to_client[i], client_out[i], ACK))
    return out


def _closes(
    i: Ints,
    over: Ints,
    to_server: Ints,
    to_client: Ints,
    client_out: Bools,
    totals: list[Ints],
) -> list[_Part]:
    """The FIN of either side, and the last ACK."""
    request_end, answered = (1 + total[i] for total in totals)
    closed = over[i] + to_server[i]
    return [
        _bare(i, over[i], client_out[i], FIN | ACK, request_end),
        _bare(i, closed, ~client_out[i], FIN | ACK, answered),
        _bare(i, closed + to_client[i], client_out[i], ACK),
    ]


def _segments(
    of: Ints, start: Ints, size: Ints, outbound: Bools, trip: Ints
) -> tuple[_Part, Bools]:
    """Cut messages into segments, ten in flight; return also which ones end their message."""
    pieces = -(-size // _SEGMENT)
    message = np.repeat(np.arange(len(of)), pieces)
    k = np.arange(len(message)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    last = k == pieces[message] - 1
    payload = np.where(last, size[message] - k * _SEGMENT, _SEGMENT)
    flow = of[message]
    sequence = 1 + _running_sum(flow, payload) - payload
    time = start[message] + k // _AT_ONCE * trip[flow] + k * _SERIAL_US
    flags = np.where(last, PUSH | ACK, ACK)
    return _Part(flow, time, outbound[flow], payload, flags, sequence, sequence + payload), last


def _lasts(size: Ints, trip: Ints) -> Ints:
    """Microseconds from the first to the last segment of messages."""
    further = np.maximum(-(-size // _SEGMENT) - 1, 0)
    lasts: Ints = further // _AT_ONCE * trip + further * _SERIAL_US
    return lasts


def _bare(flow: Ints, time: Ints, outbound: Bools, flags: int, sequence: Any = -1) -> _Part:
    """Packets without payload; a SYN or FIN takes one sequence number."""
    counted = np.broadcast_to(np.asarray(sequence, dtype=np.int64), flow.shape)
    end = np.where(counted < 0, 0, counted + 1)
    none = np.zeros(len(flow), dtype=np.int64)
    return _Part(flow, time, outbound, none, np.full(len(flow), flags), counted, end)


def _rows(part: _Part, chosen: Bools) -> _Part:
    return _Part(*(column[chosen] for column in vars(part).values()))


def _later(part: _Part, by: Ints) -> _Part:
    columns = vars(part)
    return _Part(**{**columns, "time": part.time + by})


def _in_order(parts: list[_Part], flows: Conversations) -> Packets:
    """Order the packets by time, and fill in what each end has sent and acknowledged until then."""
    flow, time, outbound, payload, flags, sequence, end = (
        np.concatenate([getattr(p, name) for p in parts]) for name in _Part.__dataclass_fields__
    )
    order = np.lexsort((time, flow))
    flow, time, outbound, payload, flags, sequence, end = (
        column[order] for column in (flow, time, outbound, payload, flags, sequence, end)
    )
    sent = [_running_max(flow, np.where(outbound == way, end, 0)) for way in (False, True)]
    own = np.where(outbound, sent[1], sent[0])
    other = np.where(outbound, sent[0], sent[1])
    due = np.where(sequence < 0, own, sequence)
    first = flows.first_sequence
    side = outbound.astype(np.int64)
    by_time = np.argsort(time, kind="stable")
    return Packets(
        flow=flow[by_time],
        time=time[by_time] + _START_US,
        outbound=outbound[by_time],
        payload=payload[by_time],
        flags=flags[by_time],
        sequence=((first[side, flow] + due) & 0xFFFFFFFF)[by_time],
        acknowledged=np.where(flags & ACK, (first[1 - side, flow] + other) & 0xFFFFFFFF, 0)[
            by_time
        ],
    )


def _running_sum(group: Ints, values: Ints) -> Ints:
    """Sums of the values so far within each group; the rows of a group are contiguous."""
    total = np.cumsum(values)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    before = np.repeat(total[starts] - values[starts], np.diff(np.append(starts, len(group))))
    sums: Ints = total - before
    return sums


def _running_max(group: Ints, values: Ints) -> Ints:
    """Largest value so far within each group; groups ascend."""
    step = group << 34  # larger than all values, so that groups do not mix
    largest: Ints = np.maximum.accumulate(values + step) - step
    return largest


def _chance(
    rng: np.random.Generator, kind: Ints, share: Callable[[ApplicationTraffic], float]
) -> Bools:
    """Draw for each flow whether a property with the given share holds."""
    happens: Bools = rng.random(len(kind)) < np.array([share(b) for b in BEHAVIOURS])[kind]
    return happens


def _draw(
    rng: np.random.Generator, kind: Ints, sizes: Callable[[ApplicationTraffic], SizeDistribution]
) -> NDArray[np.float64]:
    """Draw a value for each flow from the distribution of its behaviour."""
    every = [sizes(b) for b in BEHAVIOURS]
    median, spread, least, most, padding = (
        np.array([getattr(s, name) for s in every])[kind]
        for name in SizeDistribution.__dataclass_fields__
    )
    drawn = np.clip(median * np.exp(spread * rng.standard_normal(len(kind))), least, most)
    padded: NDArray[np.float64] = drawn + rng.uniform(0, padding)
    return padded


def _info_lines(flows: Conversations, packets: Packets, labels: list[str]) -> list[str]:
    """Lines of the labelled flows, each with its end, in order of their starts."""
    count = len(labels)
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.zeros(count, dtype=np.int64)
    np.minimum.at(first, packets.flow, packets.time)
    np.maximum.at(last, packets.flow, packets.time)
    lines: list[str] = []
    for i, label in enumerate(labels):
        if not label:
            continue
        local = host(flows, i, local=True)
        remote = host(flows, i, local=False)
        protocol = "UDP" if flows.udp[i] else "TCP"
        url = f"http://{remote}/#top" if label == "web-browser" else ""
        fields = (
            len(lines), first[i], last[i], local, remote, flows.local_port[i],
            flows.remote_port[i], protocol, MARK, label, url, "", "",
        )  # fmt: skip
        lines.append("#".join(map(str, fields)) + "\n")
    return lines


def _readme(flows: int, seed: int, packets: int) -> str:
    return (
        "# Synthetic captures in the format of UPC-AAU\n\n"
        f"{flows:,} conversations, {packets:,} packets, made by n3ic from seed {seed}:\n"
        f"`n3ic data generate upc-aau --flows {flows} --seed {seed}`. Nothing here was captured\n"
        "from a network, and no figure on it says anything about real traffic.\n"
    )
