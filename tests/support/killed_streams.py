# SPDX-License-Identifier: Apache-2.0
"""Streams that kill themselves (SIGKILL) at the N-th step that touches a file or a peer.

usage: python -m tests.support.killed_streams FOLDER MODEL CAPTURE SINK_NAME STRIDE

Each is a fork of this process: a stream of the capture into a sink of its own folder FOLDER/N.
It is begun with a kill at its N-th step, again with a kill at its (N + 3)-th, and then without.
N counts up by STRIDE until a stream gets through; prints how many were killed.
"""

import os
import signal
import sys
from pathlib import Path

from n3ic.model.load import load_model
from n3ic.systems.stream.flows import sink as sinks
from n3ic.systems.stream.flows.sinks import callback, kafka, nats
from n3ic.systems.stream.flows.sources import capture
from tests.support.stream_models import stream

steps = 0
last = None


def step():
    global steps
    steps += 1
    if steps == last:
        os.kill(os.getpid(), signal.SIGKILL)


def stepping(owner, name):
    """Count a step before a function and one behind it."""
    real = getattr(owner, name)

    def counted(*given, **named):
        step()
        found = real(*given, **named)
        step()
        return found

    setattr(owner, name, counted)


def half_written(file, data):
    """Write a half, so that a kill leaves it there, then the rest."""
    file._stream.write(data[: len(data) // 2])
    file._stream.flush()
    step()
    file._stream.write(data[len(data) // 2 :])
    step()


def once(kill, folder, model, path, name):
    """Run a stream in a fork, killed at a step; whether it was killed."""
    child = os.fork()
    if child == 0:
        global last, steps
        last, steps = kill, 0
        stream(path, model, sink_of(folder, name), state=folder / "state", commit_s=0)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0, (kill, folder)
    return False


class Journal:
    """A consumer that keeps every call, as a peer would that a stream cannot cut."""

    def __init__(self, path):
        self.path = path

    def write(self, batch):
        text = "".join(f"{number}\n" for number in batch.records["number"])
        with self.path.open("a") as out:
            out.write(text)
        step()


def sink_of(folder, name):
    if name == "callback":
        return callback.CallbackSink(Journal(folder / "journal").write, "journal")
    return name.replace("NUMBER", folder.name) if "://" in name else folder / name


def main(folder, model, path, name, stride):
    os.fsync = lambda handle: None
    for owner, function in ((os, "fsync"), (os, "replace"), (os, "ftruncate"), (os, "rename")):
        stepping(owner, function)
    sinks.CutFile.write = half_written
    for owner in (kafka.KafkaTopic, nats.NatsSubject):
        for function in ("_send", "_publish", "flush"):
            if hasattr(owner, function):
                stepping(owner, function)
    capture.PACKETS = 40
    model = load_model(model)
    # Loads in this process what the forks need.
    stream(path, model, Path(folder) / "first.jsonl", commit_s=0)
    (Path(folder) / "first.jsonl").unlink()
    for number, kill in enumerate(range(1, 1000, int(stride))):
        own = Path(folder) / str(kill)
        own.mkdir()
        killed = once(kill, own, model, path, name)
        if killed and once(kill + 3, own, model, path, name):
            once(None, own, model, path, name)
        if not killed:
            sys.stdout.write(str(number))
            return
    raise AssertionError("no stream got through")


if __name__ == "__main__":
    main(*sys.argv[1:])
