# SPDX-License-Identifier: Apache-2.0
"""The function ``messages``: from frames in shared memory to what a module makes of messages."""

import json
import socket
import struct
import threading
from contextlib import closing, nullcontext
from typing import ClassVar

import numpy as np
import pytest
import torch

from n3ic.errors import MissingDependencyError, UsageError
from n3ic.exporters.dpdk.application import require_dpdk
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.systems.stream.functions import messages, process
from n3ic.systems.stream.functions.chain import ChainFunction
from n3ic.systems.stream.functions.messages import MessagesFunction
from n3ic.systems.stream.functions.packets import (
    HOLD,
    PASS,
    PacketFunction,
    PacketView,
    PayloadKind,
)
from n3ic.systems.stream.messages.devices import TransferDevice
from n3ic.systems.stream.messages.models import message_model
from n3ic.systems.stream.messages.protocol import last_bytes, packets_of
from n3ic.systems.stream.messages.transfers import TRANSFERS
from n3ic.targets.fuzz_traffic import pcap

try:
    require_dpdk()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

PORT, PART = 9700, 256
MODEL = "flow-mlp"
SIZE = message_model(MODEL).message_bytes
PACKETS = -(-SIZE // PART)


def sum_of(data):
    words = struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2))
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(payload, sender=1, port=PORT, *, tags=b"", options=b"", fragment=0, summed=True):
    """A frame of Ethernet with UDP over IPv4."""
    ends = socket.inet_aton(f"192.0.2.{sender}") + socket.inet_aton("192.0.2.200")
    size = 8 + len(payload)
    udp = struct.pack("!4H", 5000 + sender, port, size, 0) + payload
    total = sum_of(ends + struct.pack("!HH", 17, size) + udp) or 0xFFFF
    udp = udp[:6] + struct.pack("!H", total * summed) + payload
    first = 0x45 + len(options) // 4
    ip = [first, 0, 20 + len(options) + size, 7, fragment, 64, 17]
    head = struct.pack("!BBHHHBBH", *ip, 0) + ends + options
    head = head[:10] + struct.pack("!H", sum_of(head)) + head[12:]
    return bytes(12) + tags + b"\x08\x00" + head + udp


def changed(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def parts(number, data):
    """The packets of a message, as a sender packs them."""
    packets = packets_of(number, data, PART)
    lengths = [packets.shape[1]] * (len(packets) - 1) + [last_bytes(len(data), PART)]
    return [p[:n].tobytes() for p, n in zip(packets, lengths, strict=True)]


def image(seed):
    return np.random.default_rng(seed).normal(size=SIZE // 4).astype("<f4").tobytes()


def classes_of(data):
    """What the module makes of a message's bytes, as ``n3ic stream receive`` places it."""
    model = message_model(MODEL)
    with closing(TransferDevice()) as device:
        rows = device.tensor(1, SIZE)
        rows[0, :SIZE] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return model.on(device)(rows[:, :SIZE], [])[0].argmax(dim=-1).reshape(-1).tolist()


def view_of(frames, cut=()):
    """Frames in memory of their own, as a manager hands them over."""
    room = 2048
    data = np.zeros((len(frames) + 1) * room, dtype=np.uint8)
    offset = 128 + room * np.arange(len(frames), dtype=np.uint64)
    for start, one in zip(offset.tolist(), frames, strict=True):
        data[start : start + len(one)] = np.frombuffer(one, dtype=np.uint8)
    data.flags.writeable = False
    length = np.array([len(f) for f in frames], dtype=np.uint32)
    captured = length - np.isin(np.arange(len(frames)), cut).astype(np.uint32)
    none = np.zeros(len(frames), dtype=np.uint32)
    descriptors = np.arange(len(frames), dtype=np.uint64)
    return PacketView(data, descriptors, offset, captured, length, none.astype(np.uint64), none)


def test_payloads_are_found_and_damage_is_seen():
    tag = b"\x81\x00\x00\x07"
    good = frame(b"payload")
    wrong = struct.pack("!H", 9)
    frames = [
        *(good, frame(b"odd", 2), frame(b"tagged", tags=tag), frame(b"two", tags=tag * 2)),
        *(frame(b"options", options=bytes(4)), frame(b"no sum", summed=False), good + bytes(9)),
        *(
            frame(b"other", port=53),
            tag * 5,
            b"short",
            changed(good, 23),
            frame(b"x", tags=tag * 3),
        ),
        *(frame(b"first", fragment=0x2000), frame(b"last", fragment=1)),
        *(changed(good, 45), changed(good, 15), changed(good, 40), good, good[:38]),
        *(good[:38] + wrong + good[40:], frame(b"", options=bytes(4))[:20]),
    ]
    view = view_of(frames, cut=[17])
    payloads = view.payloads(PORT)
    kinds = [PayloadKind(int(k)).name for k in payloads.kind]
    assert kinds[:7] == ["WHOLE"] * 7
    assert kinds[7:12] == ["OTHER"] * 5
    assert kinds[12:14] == ["FRAGMENT"] * 2
    assert kinds[14:20] == ["DAMAGED"] * 6
    assert kinds[20] == "OTHER"
    payload_bytes = [
        view.data[s : s + n].tobytes()
        for s, n in zip(payloads.start[:7].tolist(), payloads.length[:7].tolist(), strict=True)
    ]
    assert payload_bytes == [
        b"payload",
        b"odd",
        b"tagged",
        b"two",
        b"options",
        b"no sum",
        b"payload",
    ]
    assert payloads.sender[:2].tolist() == [5001 << 32 | 0xC0000201, 5002 << 32 | 0xC0000202]


class Shared:
    """Stands for a manager: memory, and what was given back."""

    def __init__(self, data):
        self.data, self.back = data, []

    def alive(self):
        pass

    def give_back(self, descriptors, actions):
        assert (actions == PASS).all()
        self.back += descriptors.tolist()


@pytest.mark.parametrize("way", TRANSFERS)
def test_packets_are_held_until_the_device_has_them(way, tmp_path):
    """More messages come than there are rows: none is lost, and one that is incomplete ends."""
    data = [image(seed) for seed in range(5)]
    frames = [frame(p) for n, d in enumerate(data) for p in parts(n, d)] + [frame(b"x", port=1)]
    frames += [frame(p) for p in parts(9, image(9))[1:]]
    view = view_of(frames)
    shared = Shared(view.data)
    options = {"model": MODEL, "out": str(tmp_path / "out"), "way": way, "rows": 2}
    options["counts"] = str(tmp_path / "counts")
    function = MessagesFunction(options, (), shared)
    actions = function.on_batch(view)
    passed = [i for i, action in enumerate(actions) if action == PASS]
    assert passed == [5 * PACKETS] and (np.delete(actions, passed) == HOLD).all()
    function.on_end()
    assert shared.back == [i for i in range(len(frames)) if i not in passed]
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [line["message"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["classes"] for line in lines] == [classes_of(d) for d in data]
    counts = json.loads((tmp_path / "counts").read_text())
    assert counts["messages"]["computed"] == 5 and counts["messages"]["expired"] == 1
    assert counts["not_messages"] == {"other": 1, "fragment": 0, "damaged": 0}


def test_what_the_device_reads_late_is_given_back_when_no_packet_comes(tmp_path, monkeypatch):
    may_read = threading.Event()

    class Late(TransferDevice):
        def submit(self, work):
            return super().submit(lambda: may_read.wait(60) and work())

    monkeypatch.setattr(messages, "open_device", lambda _: Late())
    view = view_of([frame(p) for p in parts(1, image(1))[:5]])
    shared = Shared(view.data)
    function = MessagesFunction({"model": MODEL, "out": str(tmp_path / "out")}, (), shared)
    assert (function.on_batch(view) == HOLD).all()
    function.on_idle()
    assert not shared.back and function.wait_us < PacketFunction.wait_us
    may_read.set()
    function.batches.release(block=True)
    function.on_idle()
    assert shared.back == [0, 1, 2, 3, 4] and function.wait_us == PacketFunction.wait_us
    function.on_end()


def test_a_function_hears_when_no_packet_comes(monkeypatch):
    """After as long a time as it has asked for."""

    class Quiet(Shared):
        waits: ClassVar[list[int]] = []
        stopping = False

        def __init__(self, *_):
            super().__init__(None)

        def receive(self, wait_us):
            self.waits.append(wait_us)
            self.stopping = len(self.waits) >= 2  # the ring is looked at once more
            return ()

        def check_manager(self):
            pass

    class Waiting(PacketFunction):
        def on_idle(self):
            self.wait_us = 7

    monkeypatch.setattr(process, "SharedPackets", lambda *_: nullcontext(Quiet()))
    monkeypatch.setattr(process, "function_class", lambda _: Waiting)
    process.serve(process.FunctionTask("", "", ChainFunction("one", "x")))
    assert Quiet.waits == [PacketFunction.wait_us, 7, 7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"way": "pulled"}, "expected a way of"),
        ({"rows": 0}, "options.rows: expected 1 to"),
        ({"port": "x"}, "options.port: expected a number"),
        ({"ways": "pull"}, "options.ways: unknown"),
        ({"model": "vgg12"}, "expected vgg11"),
    ],
)
def test_wrong_options_are_explained(options, message, tmp_path):
    function_options = {"model": MODEL, "out": str(tmp_path / "out")} | options
    with pytest.raises(UsageError, match=message):
        MessagesFunction(function_options, (), Shared(np.zeros(64, dtype=np.uint8)))


CHAIN = """
ports = ["net_pcap0,rx_pcap=in.pcap", "net_pcap1,tx_pcap=out.pcap"]
receive = ["copy", "gather", "pull"]
until_end = true
"""
ONE = """
[[function]]
name = "{0}"
use = "messages"
next = "net_pcap1"
hang_s = 120
tickets = 64
[function.options]
model = "flow-mlp"
way = "{0}"
out = "{0}.jsonl"
counts = "{0}.json"
timeout = 60
"""


@pytest.mark.exhaustive
def test_three_ways_give_what_the_module_makes_of_the_same_bytes(n3ic, tmp_path):
    """Messages of a capture: in any order, doubled, lost, damaged, among other packets.

    A function may have fewer packets than a block of messages has: it gives them back meanwhile.
    """
    rng = np.random.default_rng(3)
    tag = b"\x81\x00\x00\x07"
    data = {(1 + n % 2, n): image(n) for n in range(40)}
    frames, damaged = [], 0
    for at in range(0, 40, 4):  # four at a time are mixed
        block = [
            (n, i, frame(p, s, tags=tag * (n % 3)))
            for (s, n), d in [*data.items()][at : at + 4]
            for i, p in enumerate(parts(n, d))
        ]
        block += block[:: 1 + at % 7]  # some come twice
        for place in rng.permutation(len(block)):
            n, i, one = block[place]
            if (n, i) == (7, 3):  # lost
                continue
            damaged += (n, i) == (13, 1)
            frames.append(changed(one, len(one) - 5) if (n, i) == (13, 1) else one)
        frames += [frame(b"query", port=53), frame(b"part", fragment=1)]
    stamped = [(f, len(f), 1_700_000_000_000_000 + i) for i, f in enumerate(frames)]
    (tmp_path / "in.pcap").write_bytes(pcap(LINK_ETHERNET, stamped, 1000, "<"))
    (tmp_path / "chain.toml").write_text(CHAIN + "".join(ONE.format(way) for way in TRANSFERS))
    done = n3ic("stream functions run chain.toml --socket here --json")
    status = json.loads(done.stdout)
    whole = {key: d for key, d in data.items() if key[1] not in (7, 13)}
    expected = {f"192.0.2.{s}:{5000 + s} {n}": classes_of(d) for (s, n), d in whole.items()}
    for way in TRANSFERS:
        lines = [json.loads(x) for x in (tmp_path / f"{way}.jsonl").read_text().splitlines()]
        assert {f"{x['sender']} {x['message']}": x["classes"] for x in lines} == expected
        assert len(lines) == len(expected)
        assert all(0 <= x["packets_ms"] <= x["transfer_ms"] for x in lines)
        counts = json.loads((tmp_path / f"{way}.json").read_text())
        assert counts["messages"] == {
            "complete": 38, "computed": 38, "expired": 2, "no_room": 0, "device_memory": 0,
        }  # fmt: skip
        assert counts["not_messages"] == {"other": 10, "fragment": 10, "damaged": damaged}
        assert counts["packets"] + sum(counts["not_messages"].values()) == len(frames)
        assert counts["refused"].keys() == {"doubled", "late", "expired"}
    balance = status["balance"]
    assert balance["sent"] == status["copies"] == 3 * len(frames)
    assert not balance["unaccounted"] and not balance["in_functions"]
    assert not balance["lost_with_functions"]
    assert status["buffers"]["free"] == status["buffers"]["all"]
