# SPDX-License-Identifier: Apache-2.0
"""``n3ic`` as a person types it."""

import contextlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from unittest import mock

from n3ic.cli.main import main

N3IC = [sys.executable, "-m", "n3ic"]


def n3ic(*words, cwd, expect=0, input="", env=None):  # noqa: A002 - subprocess calls it that
    """Run a command, and expect an exit code and no traceback.

    It runs within the test's process, which has the libraries imported; with an environment of its
    own, it has a process of its own.
    """
    words = [*map(str, words)]
    done = _called(words, cwd, input) if env is None else _started(words, cwd, input, env)
    assert done.returncode == expect, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


def _started(words, cwd, typed_in, env):
    return subprocess.run(
        [*N3IC, *words],
        cwd=cwd,
        env=env,
        input=typed_in,
        capture_output=True,
        text=True,
        timeout=900,
    )


def _called(words, cwd, typed_in):
    with contextlib.ExitStack() as opened:
        stdin, out, err = (
            opened.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", newline=""))
            for _ in range(3)
        )
        stdin.write(typed_in)
        stdin.seek(0)
        opened.enter_context(contextlib.chdir(cwd))
        opened.enter_context(contextlib.redirect_stdout(out))
        opened.enter_context(contextlib.redirect_stderr(err))
        opened.enter_context(mock.patch.multiple(sys, stdin=stdin, argv=["n3ic", *words]))
        opened.enter_context(warnings.catch_warnings())
        try:
            main()
        except SystemExit as end:
            code = end.code
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


def typed(text, cwd, expect=0):
    """The same for a line of text, in the words that a shell makes of it."""
    return n3ic(*shlex.split(text), cwd=cwd, expect=expect)


def interrupted(*words, cwd, once):
    """Interrupt a command as soon as a file of that pattern is there, and give what it said."""
    process = subprocess.Popen(
        [*N3IC, *map(str, words)],
        cwd=cwd,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a shell's background jobs ignore the signal, and their children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        for _ in range(6000):
            if list(cwd.glob(once)) or process.poll() is not None:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "n3ic: error: interrupted; nothing was left half-written"
    return err
