# SPDX-License-Identifier: Apache-2.0
"""The measurement of the three ways: one sender process for all tests."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from n3ic.systems.stream.messages.assembly import PartialMessage  # noqa: E402
from n3ic.systems.stream.messages.devices import open_device  # noqa: E402
from n3ic.systems.stream.messages.models import message_model  # noqa: E402
from n3ic.systems.stream.messages.transfers import TRANSFERS  # noqa: E402
from scripts.stream_bench import __main__ as bench  # noqa: E402
from scripts.stream_bench import loopback, measurement  # noqa: E402
from scripts.stream_bench.digits import DigitImages  # noqa: E402
from scripts.stream_bench.loopback import loopback_sender  # noqa: E402

CPU = partial(open_device, "cpu")


@pytest.fixture(scope="module")
def sender():
    with loopback_sender(256) as process:
        yield process


def test_the_transfers_of_all_ways_are_measured_and_compared(sender):
    payloads = np.random.default_rng(0).integers(0, 256, (2, 3001), dtype=np.uint8)
    figures = measurement.measure_ways(sender, CPU, [*TRANSFERS], payloads, 256, 2)
    assert [f.way for f in figures] == ["copy", "gather", "pull"]
    for f in figures:
        assert (f.messages, f.lost, f.equal) == (2, 0, True)
        assert f.transfer[0] <= f.transfer[1] and f.transfer[0] <= f.total[0]
        assert f.host_cpu > 0 and not f.pipelined


def test_a_row_that_differs_is_seen():
    sent = torch.arange(20, dtype=torch.uint8).reshape(2, 10)
    of = [PartialMessage(1, number, 0, 10, 16, np.ones(1, bool), 0, 0) for number in (1, 2, 3, 4)]
    same = [measurement._is_whole(sent, 2, sent[:1], [m]) for m in of]
    assert same == [True, True, False, False]
    changed = sent[:1].clone()
    changed[0, 9] += 1
    assert not measurement._is_whole(sent, 2, changed, of[:1])


def test_models_are_measured_alone_and_pipelined(sender):
    rng = np.random.default_rng(0)
    for name in ("flow-mlp", "binary"):
        model = message_model(name)
        inputs = measurement.model_inputs(model, 3, rng)
        (f,) = measurement.measure_ways(sender, CPU, ["pull"], inputs, 512, 2, model)
        assert (f.messages, f.lost, f.equal) == (2, 0, None)
        assert f.pipelined > 0 and 0 <= f.overlap < 1


def test_images_of_mnists_size_train_one_network_by_both_ways(sender):
    images = DigitImages(300)
    assert images.payloads.shape == (300, 4 + 28 * 28)
    assert images.test.shape == (360, 1, 28, 28) and images.test.max() == 1
    assert {*images.payloads[:, 0].tolist()} == {*range(10)}
    epochs = [
        measurement.train_epoch(sender, CPU, way, images, 50, 1024, 3) for way in ("gather", "pull")
    ]
    assert [(e.messages, e.lost) for e in epochs] == [(300, 0)] * 2
    assert epochs[0].weights == epochs[1].weights
    other = measurement.train_epoch(sender, CPU, "pull", images, 50, 1024, 4)
    assert other.weights != epochs[0].weights


def test_without_a_gpu_the_tables_say_not_run(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench.main(["--device", "cuda", "--images", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "No GPU that PyTorch can use: not run."
    rows = [line for line in lines if line.startswith("|") and "paper" not in line]
    assert all("not run | not run" in row for row in rows if "---" not in row and "way" not in row
               and "A#" not in row)  # fmt: skip
    assert "| in the NetML paper, ms | > 4 | > 1.37 | 0.63 |" in lines
    assert "| in the NetML paper | 22,727 | 29,585 | 95 % |  |" in lines


@pytest.mark.slow
def test_the_tables_are_filled_where_the_device_is(capsys):
    words = ["--repeats", "1", "--model-repeats", "1", "--models", "binary", "--images", "200"]
    assert bench.main(words) == 0
    printed = capsys.readouterr().out
    assert "the CPU took the device's part: no CUDA ran" in printed
    assert "not run" not in printed and "DIFFER" not in printed and printed.count(" equal |") == 3


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
from scripts.stream_bench.loopback import SendOrder, loopback_sender
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
        [sys.executable, tmp_path / "orphan.py"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(bench.__file__).parents[2])},
    )
    state = Path(f"/proc/{int(done.stdout)}/stat")
    end = time.monotonic() + 60
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)
