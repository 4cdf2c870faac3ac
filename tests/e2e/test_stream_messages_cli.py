# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream`` send and receive, as a person types them."""

import json
import re
import signal
import subprocess

import pytest

from tests.support.command_line import N3IC
from tests.support.command_line import typed as n3ic

pytest.importorskip("torch")


@pytest.mark.slow
def test_what_is_sent_is_received_and_ctrl_c_ends_it(tmp_path):
    (tmp_path / "flows.bin").write_bytes(bytes(2048))
    (tmp_path / "short.bin").write_bytes(bytes(100))
    with subprocess.Popen(
        [*N3IC, "stream", "receive", "--model", "binary", "--listen", "127.0.0.1:0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        port = re.search(r"listening on 127.0.0.1:(\d+)", process.stderr.readline())[1]
        sent = n3ic(f"stream send short.bin flows.bin --to 127.0.0.1:{port} --part 256", tmp_path)
        assert "2 messages in 9 packets" in sent.stdout
        address = json.loads(process.stdout.readline())
        assert len(address["classes"]) == 64
        assert address["sender"].startswith("127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "1 messages computed, 9 packets received" in errors
    assert "lost packets: of a message whose size the receiver does not take: 1" in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("send nothing.bin --to 127.0.0.1:9", "nothing.bin: No such file or directory"),
        ("send there.bin --to 127.0.0.1", "--to: expected HOST:PORT, got '127.0.0.1'"),
        ("send there.bin --to 127.0.0.1:9 --part 30", "expected a multiple of 4"),
        (
            "receive --model binary --device tpu",
            "expected a device of cpu, cuda, simulator, got 'tpu'",
        ),
        ("receive --model binary --way push", "expected a way of copy, gather, pull, got 'push'"),
        (
            "receive --model binary --packet 10Q",
            "--packet: expected bytes such as 1024, 500K or 4M",
        ),
        ("receive --model resnet", "or a model file or run, got 'resnet'"),
    ],
)
def test_a_mistake_is_told(words, message, tmp_path):
    (tmp_path / "there.bin").write_bytes(b"abc")
    done = n3ic(f"stream {words}", tmp_path, expect=2)
    assert message in " ".join(done.stderr.split())


def test_a_device_that_is_too_small_is_told(tmp_path):
    words = "stream receive --model binary --device cpu --device-memory 1K --listen 127.0.0.1:0"
    done = n3ic(words, tmp_path, expect=1)
    assert "the device may hold 1,000 bytes" in done.stderr
