"""``n3ic`` as a person types it, in a process of its own."""

import shlex
import subprocess
import sys

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
