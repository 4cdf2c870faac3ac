"""``n3ic`` as a person types it, in a process of its own."""

import shlex
import signal
import subprocess
import sys
import time

N3IC = [sys.executable, "-m", "n3ic"]


def n3ic(*words, cwd, expect=0, timeout=900, **more):
    """Run a command, and expect an exit code and no traceback."""
    done = subprocess.run(
        [*N3IC, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=timeout, **more
    )
    assert done.returncode == expect, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


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
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "n3ic: error: interrupted; nothing was left half-written"
    return err
