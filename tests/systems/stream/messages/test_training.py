# SPDX-License-Identifier: Apache-2.0
"""Training on the stream, and the benchmark: one sender process for all tests."""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from n3ic.errors import UsageError
from n3ic.model.bits import unpack
from n3ic.systems.stream.messages import bench, loopback
from n3ic.systems.stream.messages.assembly import PartialMessage
from n3ic.systems.stream.messages.buffers import PAGE_KINDS
from n3ic.systems.stream.messages.devices import DeviceMemoryError, open_device
from n3ic.systems.stream.messages.loopback import loopback_sender
from n3ic.systems.stream.messages.tasks import DigitsTask, FlowsTask, StreamTask, messages_of
from n3ic.systems.stream.messages.training import digest_of, train_on_stream
from n3ic.systems.stream.messages.transfers import TRANSFERS
from n3ic.training.loop import deterministic, signs

pytest.importorskip("sklearn")
CPU = partial(open_device, "cpu")


@pytest.fixture(scope="module")
def sender():
    with loopback_sender(256) as found:
        yield found


@pytest.fixture(scope="module")
def digits():
    task = DigitsTask(0)
    task.payloads = task.payloads[:330]
    return task


def test_all_ways_give_the_weights_of_plain_training(digits, sender):
    found = [
        train_on_stream(digits, CPU, way, 50, 128, sender, seed=3)[0] for way in TRANSFERS.values()
    ]
    assert [f.lost for f in found] == [0, 0, 0]
    assert [f.messages for f in found] == [300, 300, 300]
    assert len({f.weights for f in found}) == 1
    assert len({f.accuracy for f in found}) == 1
    # The same rows in the same order, from memory.
    order = np.random.default_rng(3).permutation(330)[:300]
    rows = torch.from_numpy(digits.payloads[order])
    with deterministic(3):
        network = digits.network().train()
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
        for part in rows.split(50):
            x = part[:, 4:].clone().view(torch.float32).reshape(-1, 1, 8, 8)
            y = part[:, :4].clone().view(torch.int32).flatten().long()
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x), y).backward()
            optimizer.step()
    assert digest_of(network) == found[0].weights


def test_another_seed_gives_other_weights(digits, sender):
    gather = TRANSFERS["gather"]
    first, again, other = (
        train_on_stream(digits, CPU, gather, 80, 128, sender, seed=seed)[0].weights
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_binary_network_of_flows_is_the_exported_one(sender):
    task = FlowsTask("doh-tunnels", 0)
    runs = [
        train_on_stream(task, CPU, TRANSFERS[way], 60, 128, sender) for way in ("gather", "pull")
    ]
    (first, network), (second, _) = runs
    assert first.weights == second.weights
    model = task.model(network)
    right = model.scores(task.test_words).argmax(axis=1) == task.test_label.numpy()
    assert first.accuracy == right.mean() > 0.4  # of four classes
    logits = network.eval()(task.test)
    assert (logits.argmax(dim=1).numpy() == model.scores(task.test_words).argmax(axis=1)).all()


def test_bits_on_the_device_are_those_of_the_product():
    task = FlowsTask.__new__(FlowsTask)
    words = np.random.default_rng(0).integers(0, 2**32, (5, 2), dtype=np.uint32)
    task.spec = type("Spec", (), {"n_bits": 43})
    rows = torch.from_numpy(messages_of(np.arange(5), words))[:, 4:]
    assert torch.equal(task.inputs(rows.clone()), signs(unpack(words, 43)))


def test_a_device_that_is_too_small_trains_nothing(digits, sender):
    with pytest.raises(DeviceMemoryError, match="the device may hold 1,000 bytes"):
        train_on_stream(
            digits, partial(open_device, "cpu", 1000), TRANSFERS["pull"], 50, 128, sender
        )


def test_messages_are_a_label_and_a_row():
    found = messages_of(np.array([3, 258]), np.array([[1.0], [2.0]], dtype="<f4"))
    assert found.tolist() == [[3, 0, 0, 0, 0, 0, 128, 63], [2, 1, 0, 0, 0, 0, 0, 64]]


def test_the_transfers_of_all_ways_are_measured_and_compared(sender, monkeypatch):
    monkeypatch.setattr(bench, "loopback_sender", lambda _: as_it_is(sender))
    told = []
    found = bench.bench_transfer(
        CPU,
        [*TRANSFERS.values()],
        [3001],
        [256],
        2,
        report_progress=lambda share, said: told.append(said),
    )
    assert [f.way for f in found] == ["copy", "gather", "pull"]
    for f in found:
        assert (f.messages, f.lost, f.equal) == (2, 0, True)
        assert f.first[0] <= f.last[0]
        assert f.tail[0] <= f.transfer[0] <= f.total[0]
        assert f.host_cpu_us > 0
    assert told == ["3,001 bytes in packets of 256"]


class as_it_is:  # noqa: N801 - a context manager
    def __init__(self, sender):
        self.sender = sender

    def __enter__(self):
        return self.sender

    def __exit__(self, *_):
        pass


def test_a_row_that_differs_is_seen():
    sent = torch.arange(20, dtype=torch.uint8).reshape(2, 10)
    of = [PartialMessage(1, number, 0, 10, 16, np.ones(1, bool), 0, 0) for number in (1, 2, 3, 4)]
    same = [bench._arrived_whole(sent, 2, sent[:1], [m]) for m in of]
    assert same == [True, True, False, False]
    changed = sent[:1].clone()
    changed[0, 9] += 1
    assert not bench._arrived_whole(sent, 2, changed, of[:1])


def test_models_are_measured_alone_and_pipelined(sender, monkeypatch):
    monkeypatch.setattr(bench, "loopback_sender", lambda _: as_it_is(sender))
    found, alone = bench.bench_models(CPU, [TRANSFERS["pull"]], ["flow-mlp", "binary"], [512], 2)
    assert [f.model for f in found] == ["flow-mlp", "binary"] == [*alone]
    for f in found:
        assert (f.messages, f.lost, f.equal) == (2, 0, None)
        assert f.pipelined_ms > 0
        assert 0 <= f.overlap < 1


def test_memory_of_all_kinds_forwards(sender, monkeypatch):
    monkeypatch.setattr(bench, "loopback_sender", lambda _: as_it_is(sender))
    monkeypatch.setattr(bench, "_SLOTS_FORWARD", 512)
    found = bench.bench_memory(CPU, [256], 600, 1)
    assert [f.pages for f in found] == [*PAGE_KINDS]
    assert all(f.gbit_s > 0 and f.cpu_ns > 0 for f in found)


def test_a_dead_sender_is_told():
    with loopback_sender(16) as sender:
        sender.process.kill()
        sender.process.join()
        with pytest.raises(loopback.N3icError, match="the sending process died"):
            while sender.begun() is None:
                pass


ORPHAN = """
import os, signal, socket
import numpy as np
from n3ic.systems.stream.messages.loopback import SendOrder, loopback_sender
if __name__ == "__main__":
    with socket.socket(type=socket.SOCK_DGRAM) as sock, loopback_sender(16) as sender:
        sock.bind(("127.0.0.1", 0))
        sender.load(np.zeros((1, 1 << 20), np.uint8))
        sender.order(SendOrder(sock.getsockname()[1], 1, range(1), 256))
        sock.recv(500)
        print(sender.process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_sender_ends_with_its_receiver(tmp_path):
    (tmp_path / "orphan.py").write_text(ORPHAN)
    done = subprocess.run(
        [sys.executable, tmp_path / "orphan.py"], stdout=subprocess.PIPE, text=True, timeout=60
    )
    state = Path(f"/proc/{int(done.stdout)}/stat")
    end = time.monotonic() + 60
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("part", [0, 30])
def test_a_packet_size_that_is_refused_is_told(part):
    with pytest.raises(UsageError, match="multiple of 4"):
        bench.bench_transfer(CPU, [*TRANSFERS.values()], [100], [part], 1)


def test_every_task_says_what_it_is(digits):
    assert isinstance(digits, StreamTask)
    assert "digits" in digits.what
