# SPDX-License-Identifier: Apache-2.0
"""Messages from a socket to a tensor: three ways, bounds, losses and faults."""

import socket
import threading
import time
from contextlib import closing
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from n3ic.errors import N3icError, UsageError
from n3ic.systems.stream.messages.assembly import AssemblyLimits
from n3ic.systems.stream.messages.buffers import HUGE_PAGE, PacketBuffers
from n3ic.systems.stream.messages.devices import (
    CudaDevice,
    DeviceMemoryError,
    SimulatorDevice,
    TransferDevice,
    gather,
    open_device,
)
from n3ic.systems.stream.messages.pipeline import MessagePipeline
from n3ic.systems.stream.messages.protocol import HEADER_BYTES, last_bytes, packets_of
from n3ic.systems.stream.messages.receiver import (
    PacketReceiver,
    open_receiver,
    refused_by_kernel,
)
from n3ic.systems.stream.messages.sender import MessageSender
from n3ic.systems.stream.messages.transfers import TRANSFERS

PART = 256
needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="needs Numba")


def random_bytes(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


class Rig:
    """A pipeline with a socket, and one that sends to it."""

    def __init__(self, way="pull", size=1000, device=None, work=None, slots=64, **more):
        self.sock = open_receiver("127.0.0.1")
        self.out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.out.connect(self.sock.getsockname())
        self.device = device or TransferDevice()
        limits = AssemblyLimits(size, timeout_s=more.pop("timeout_s", 60.0))
        buffers = PacketBuffers.allocate(slots, PART + HEADER_BYTES)
        work = work or (lambda rows, messages: rows.clone())
        self.pipeline = MessagePipeline(
            self.sock, buffers, self.device, TRANSFERS[way], work, limits, **more
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipeline.__exit__(None, None, None)
        self.device.close()
        self.sock.close()
        self.out.close()

    def send(self, number, data, order=None):
        packets = packets_of(number, data, PART)
        lengths = [HEADER_BYTES + PART] * (len(packets) - 1) + [last_bytes(len(data), PART)]
        for i in range(len(packets)) if order is None else order:
            self.out.send(packets[i, : lengths[i]])

    def until(self, what):
        out, end = [], time.monotonic() + 60
        while not what(out):
            assert time.monotonic() < end
            out += self.pipeline.step(0.01)
        return out


@pytest.mark.parametrize("way", TRANSFERS)
def test_every_way_brings_the_bytes_in_any_order(way):
    data = [random_bytes(5001, seed) for seed in range(4)]
    order = np.random.default_rng(0).permutation(20)
    with Rig(way, size=5001, batch=2) as rig:
        for number, payload in enumerate(data):
            rig.send(number, payload, [*order, *order[:3]])
        batches = rig.until(lambda out: len(out) == 2)
    for i, batch in enumerate(batches):
        assert [m.number for m in batch.messages] == [2 * i, 2 * i + 1]
        assert (batch.result.numpy() == data[2 * i : 2 * i + 2]).all()
    counts = rig.pipeline.counts
    assert counts.computed == 4
    assert counts.to_dict()["refused"].keys() <= {"doubled", "late"}


def ring_of(rng, slots, stride):
    """Entries of two messages' packets in random slots, whose last ones are no whole words."""
    size = 10 * 64 + 7
    offsets = np.tile(np.arange(0, size, 64), 2)
    rows = np.repeat([0, 1], 11)
    lengths = np.minimum(64, size - offsets)
    entries = np.stack([stride * rng.permutation(slots)[:22], rows, offsets, lengths], axis=1)
    return size, rng.permutation(entries)


@pytest.mark.slow
@needs_numba
def test_the_kernel_in_the_simulator_pulls_what_a_gather_copies():
    rng = np.random.default_rng(5)
    buffers = PacketBuffers.allocate(32, 64 + HEADER_BYTES)
    buffers.data[:] = rng.integers(0, 256, buffers.data.shape)
    size, entries = ring_of(rng, 32, buffers.stride)
    ring = np.zeros((24, 4), dtype=np.int64)
    first = 9  # so that they wrap around
    ring[(first + np.arange(22)) % 24] = entries
    with closing(SimulatorDevice()) as device:
        pulled, gathered = device.tensor(2, size), device.tensor(2, size)
        device.pull(buffers, ring, first, 22, pulled).result()
    gather(buffers, ring, first, 22, gathered.numpy())
    assert (pulled[:, :size] == gathered[:, :size]).all()
    assert len(np.unique(pulled.numpy())) > 100


@pytest.mark.slow
@needs_numba
def test_payloads_of_frames_are_pulled_from_where_they_lie_in_memory_that_is_only_read():
    rng = np.random.default_rng(5)
    memory = random_bytes(1 << 13)
    memory.flags.writeable = False
    buffers = PacketBuffers.of_frames(memory)
    size = 10 * 64 + 7
    starts = 14 + 8 + 100 * rng.permutation(60)[:11]  # no multiples of 4
    offsets = np.arange(0, size, 64)
    lengths = np.minimum(64, size - offsets)
    ring = np.stack([starts, np.zeros(11, dtype=int), offsets, lengths], axis=1)
    wanted = [memory[s + HEADER_BYTES :][:n] for s, n in zip(starts, lengths, strict=True)]
    with closing(SimulatorDevice()) as device:
        pulled, gathered = device.tensor(1, size), device.tensor(1, size)
        device.pull(buffers, ring, 0, 11, pulled).result()
    gather(buffers, ring, 0, 11, gathered.numpy())
    for row_bytes in (pulled, gathered):
        assert (row_bytes[0, :size].numpy() == np.concatenate(wanted)).all()


@pytest.mark.slow
@needs_numba
def test_the_simulator_takes_the_place_of_the_device():
    data = random_bytes(1001)
    with Rig(size=1001, device=SimulatorDevice()) as rig:
        rig.send(1, data)
        (batch,) = rig.until(bool)
    assert (batch.result.numpy() == data).all()
    assert "no CUDA ran" in rig.device.ran


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_without_a_gpu_cuda_is_refused():
    with pytest.raises(UsageError, match="no GPU"):
        CudaDevice()
    assert open_device().name == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("way", TRANSFERS)
def test_cuda_brings_the_bytes(way):
    data = random_bytes(5001)
    with Rig(way, size=5001, device=CudaDevice(), work=lambda rows, _: rows.cpu()) as rig:
        rig.send(1, data)
        (batch,) = rig.until(bool)
    assert (batch.result.numpy() == data).all()


def test_what_came_early_is_on_the_device_before_the_last_packet():
    data = random_bytes(1000)
    for way, share in (("pull", 0.512), ("copy", 0.512), ("gather", 0.0)):
        with Rig(way) as rig:
            rig.send(1, data, [0, 1])
            rig.until(lambda _: rig.pipeline.received == 2 and not rig.pipeline._in_use)
            rig.send(1, data, [2, 3])
            (batch,) = rig.until(bool)
        assert batch.early == share


def test_slots_and_rows_are_used_again():
    with Rig(slots=8, size=1000) as rig:
        for number in range(10):
            data = random_bytes(1000, number)
            rig.send(number, data)
            (batch,) = rig.until(bool)
            assert (batch.result.numpy() == data).all()
        rig.until(lambda _: not rig.pipeline._in_use)


def test_a_sender_that_dies_mid_message_costs_its_message_alone():
    dying, whole = random_bytes(1000, 1), random_bytes(1000, 2)
    with Rig(timeout_s=0.05, batches=2) as rig:
        rig.send(1, dying, [0, 1])
        rig.until(lambda _: rig.pipeline.counts.expired)
        rig.send(2, whole)
        (batch,) = rig.until(bool)
    assert (batch.result.numpy() == whole).all()
    assert rig.pipeline.counts.to_dict()["messages"] == {
        "complete": 1, "computed": 1, "expired": 1, "no_room": 0, "device_memory": 0,
    }  # fmt: skip
    assert ("messages: incomplete in time", 1) in rig.pipeline.counts.lines()


def test_a_slow_consumer_costs_messages_and_no_memory():
    free = threading.Event()

    def work(rows, messages):
        assert free.wait(60)
        return messages[0].number

    with Rig(work=work, batches=2, slots=16) as rig:
        for number in range(6):
            rig.send(number, random_bytes(1000))
        rig.until(lambda _: rig.pipeline.received == 24)
        counts = rig.pipeline.counts
        assert (counts.complete, counts.no_room) == (2, 4)
        assert counts.to_dict()["refused"] == {"no_room": 16}
        free.set()
        assert [out.result for out in rig.until(lambda out: len(out) == 2)] == [0, 1]
        rig.send(9, random_bytes(1000))
        assert [out.result for out in rig.until(bool)] == [9]


def test_a_batch_counts_as_computed_when_its_rows_are_free():
    free = threading.Event()
    with Rig(work=lambda rows, messages: free.wait(60), batches=1) as rig:
        rig.send(1, random_bytes(1000))
        rig.until(lambda _: rig.pipeline._computing)
        ((_, job),) = rig.pipeline._computing
        free.set()
        job.result(60)
        assert rig.pipeline.counts.computed == 0  # a second message would find no row
        rig.until(bool)
        assert rig.pipeline.counts.computed == 1
        rig.send(2, random_bytes(1000))
        rig.until(bool)
        assert rig.pipeline.counts.no_room == 0


def test_a_full_socket_is_counted():
    with Rig() as rig:
        rig.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for number in range(40):
            rig.send(number, random_bytes(1000))
        refused = refused_by_kernel(rig.sock)
        assert refused > 0
        rig.until(lambda _: rig.pipeline.received == 160 - refused)
        assert rig.pipeline.counts.kernel_refused == refused
        assert ("packets: the socket's buffer was full", refused) in rig.pipeline.counts.lines()


def test_a_model_that_exhausts_the_device_costs_its_message_alone():
    def work(rows, messages):
        if messages[0].number == 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return messages[0].number

    with Rig(work=work) as rig:
        for number in (1, 2):
            rig.send(number, random_bytes(1000))
            (batch,) = rig.until(bool)
    assert batch.result == 2
    counts = rig.pipeline.counts
    assert (counts.device_memory, counts.computed) == (1, 1)
    assert ("messages: the device's memory did not suffice", 1) in counts.lines()


def test_another_error_of_a_model_ends_the_stream():
    def work(rows, messages):
        raise RuntimeError("of the model's own")

    with Rig(work=work) as rig:
        rig.send(1, random_bytes(1000))
        with pytest.raises(RuntimeError, match="of the model's own"):
            rig.until(bool)


def test_a_device_that_is_too_small_is_refused():
    with pytest.raises(DeviceMemoryError, match=r"may hold 3,000 bytes.*take fewer or smaller"):
        Rig(device=TransferDevice(3000), size=1000, batches=3)
    device = TransferDevice(1000)
    with closing(device), pytest.raises(DeviceMemoryError, match=r"a model of 2,400 bytes"):
        device.place(torch.nn.Linear(19, 30))


def test_the_rest_of_a_stream_is_flushed():
    with Rig(batch=4) as rig:
        for number in range(3):
            rig.send(number, random_bytes(1000, number))
        rig.until(lambda _: rig.pipeline.counts.complete == 3)
        (batch,) = rig.pipeline.flush()
    assert [m.number for m in batch.messages] == [0, 1, 2]
    assert (batch.result[2].numpy() == random_bytes(1000, 2)).all()


class TestBuffers:
    def test_slots_begin_at_lines_and_are_zero(self):
        buffers = PacketBuffers.allocate(100, 290)
        assert (buffers.slots, buffers.stride) == (100, 320)
        assert buffers.address % 64 == 0
        assert not buffers.data.any()
        assert buffers.address % HUGE_PAGE == 0

    def test_memory_of_another_program_is_taken_where_it_is(self):
        theirs = random_bytes(8 * 128)
        buffers = PacketBuffers.at(theirs.ctypes.data, 128, 8, owner=theirs)
        assert (buffers.data.reshape(-1) == theirs).all()
        theirs[130] ^= 255
        assert buffers.data[1, 2] == theirs[130]


class TestReceiver:
    def test_datagrams_lie_in_slots_with_length_and_sender(self):
        buffers = PacketBuffers.allocate(8, 100)
        with open_receiver("127.0.0.1") as sock, socket.socket(type=socket.SOCK_DGRAM) as out:
            out.connect(sock.getsockname())
            receiver = PacketReceiver(sock, buffers)
            assert receiver.receive(0, 8, 0) == 0
            for data in (b"first", b"", b"x" * 500):
                out.send(data)
            assert receiver.receive(2, 6, 60) == 3
            port = out.getsockname()[1]
        assert buffers.data[2, :5].tobytes() == b"first"
        assert buffers.lengths[2:5].tolist() == [5, 0, 0]  # the last one was cut
        assert receiver.senders(2, 3).tolist() == [port << 32 | 0x7F000001] * 3

    def test_an_address_of_another_machine_is_refused(self):
        with pytest.raises(UsageError, match=r"192\.0\.2\.1:9: "):
            open_receiver("192.0.2.1", 9)


class TestSender:
    @pytest.mark.parametrize("segments", [True, False])
    def test_all_bytes_go_out(self, segments, monkeypatch):
        data = random_bytes(100_001)
        with open_receiver("127.0.0.1") as sock:
            sender = MessageSender("127.0.0.1", sock.getsockname()[1], 1024)
            if not segments:
                sender._cut = 1
            counts = []
            assert sender.send(5, data, counts.append) == 98
            sender.close()
            assert sum(counts) == 98
            payload = b"".join(sock.recv(2000)[HEADER_BYTES:] for _ in range(98))
        assert payload == data.tobytes()

    def test_packets_that_no_link_takes_are_cut_by_ip(self):
        class Refusing:
            """A socket that refuses what the kernel would have to cut."""

            def __init__(self):
                self.sent, self.options = [], []

            def send(self, data):
                if len(data) > 1056:
                    raise OSError(22, "Invalid argument")
                self.sent.append(len(data))

            def setsockopt(self, *option):
                self.options.append(option)

        sender = MessageSender("127.0.0.1", 9, 1024)
        sender._sock.close()
        sender._sock = refusing = Refusing()
        sender.send(1, random_bytes(100_000))  # more than the kernel cuts of one call
        assert refusing.sent == [1056] * 97 + [704]
        assert refusing.options == [(17, 103, 0)]

    def test_a_name_that_nobody_has_is_refused(self):
        with pytest.raises(UsageError, match=r"nobody\.invalid"):
            MessageSender("nobody.invalid", 9, 1024)

    def test_a_network_that_refuses_is_told(self):
        sender = MessageSender("127.0.0.1", 9, 1024)
        sender._sock.close()
        with pytest.raises(N3icError, match="sending packets of 1056 bytes"):
            sender.send(1, random_bytes(100))
