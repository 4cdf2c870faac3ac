# SPDX-License-Identifier: Apache-2.0
"""Streams that kill themselves (SIGKILL) at the N-th step that touches a file or a peer.

usage: python -m tests.support.killed_streams FOLDER MODEL CAPTURE SINK_NAME STRIDE [SUCCESSOR]

Each is a fork of this process: a stream of the capture into a sink of its own folder FOLDER/N.
It is begun with a kill at its N-th step, again with a kill at its (N + 3)-th, and then without.
N counts up by STRIDE until a stream gets through; prints how many were killed.
With a SUCCESSOR, each stream follows its model's file, which that replaces amid the capture.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

from n3ic.model.load import load_model
from n3ic.systems.stream import followed_model
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
        result = real(*given, **named)
        step()
        return result

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
        settings = {"state": folder / "state", "commit_s": 0}
        if (file := folder / "now.n3ic").exists():
            model, settings["follow"] = load_model(file), file
        stream(path, model, sink_of(folder, name), **settings)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, signal.Signals(os.WTERMSIG(status))
        return True
    assert os.waitstatus_to_exitcode(status) == 0, (kill, folder)
    return False


class Journal:
    """A consumer that keeps every call, as a peer would that a stream cannot cut."""

    def __init__(self, path):
        self.path = path

    def write(self, batch):
        rows = zip(batch.records["number"].tolist(), batch.scores.tolist(), strict=True)
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        with self.path.open("a") as out:
            out.write(text)
        step()


def sink_of(folder, name):
    if name == "callback":
        return callback.CallbackSink(Journal(folder / "journal").write, "journal")
    return name.replace("NUMBER", folder.name) if "://" in name else folder / name


def replace_amid(folder, successor):
    """Replace the model's file before each process looks at it for the third time."""
    real = followed_model.FollowedModel.successor
    looks = 0

    def replaced(followed, running):
        nonlocal looks
        looks += 1
        if looks == 3:
            shutil.copy(successor, folder() / "new")
            (folder() / "new").replace(folder() / "now.n3ic")
        return real(followed, running)

    followed_model.FollowedModel.successor = replaced


def main(folder, model, path, name, stride, successor=None):
    os.fsync = lambda handle: None
    for owner, function in ((os, "fsync"), (os, "replace"), (os, "ftruncate"), (os, "rename")):
        stepping(owner, function)
    sinks.FileSink.append = half_written
    for owner in (kafka.KafkaTopic, nats.NatsSubject):
        for function in ("_send", "_publish", "flush"):
            if hasattr(owner, function):
                stepping(owner, function)
    capture.PACKETS = 40
    followed_model.EVERY_S = 0
    file, model = model, load_model(model)
    # Loads in this process what the forks need.
    stream(path, model, Path(folder) / "first.jsonl", commit_s=0)
    (Path(folder) / "first.jsonl").unlink()
    own = Path(folder)
    if successor:
        replace_amid(lambda: own, successor)
    for number, kill in enumerate(range(1, 1000, int(stride))):
        own = Path(folder) / str(kill)
        own.mkdir()
        if successor:
            shutil.copy(file, own / "now.n3ic")
        killed = once(kill, own, model, path, name)
        if killed and once(kill + 3, own, model, path, name):
            once(None, own, model, path, name)
        if not killed:
            sys.stdout.write(str(number))
            return
    raise AssertionError("no stream got through")


if __name__ == "__main__":
    main(*sys.argv[1:])
