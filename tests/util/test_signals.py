# SPDX-License-Identifier: Apache-2.0
"""Signals that end a program: heard at once, or late where a library swallowed them."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from n3ic.util.files import new_directory, write_atomic
from n3ic.util.signals import ENDING, check, ending_signals, held


def send(number):
    """To this thread: the kernel may give a process's signal to one that a library started."""
    signal.pthread_kill(threading.get_ident(), number)


def swallow(number):
    try:
        send(number)
        for _ in range(1000):
            pass
    except:  # noqa: E722 - as the libraries do that this is about
        return True
    return False


@pytest.mark.parametrize("number", ENDING)
def test_a_swallowed_signal_is_raised_again(number):
    check()
    with ending_signals() as ending:
        check()
        assert swallow(number)
        assert ending.received == number
        with pytest.raises(KeyboardInterrupt):
            check()
    check()
    assert signal.getsignal(number) != ending


def test_no_result_takes_its_place_after_a_swallowed_signal(tmp_path):
    (tmp_path / "kept").write_text("before")
    with ending_signals():
        swallow(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            write_atomic(tmp_path / "kept", "after")
    with ending_signals(), pytest.raises(KeyboardInterrupt), new_directory(tmp_path / "a" / "run"):
        swallow(signal.SIGTERM)
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "before"


def test_a_held_signal_comes_afterwards():
    done = []
    with ending_signals() as ending, pytest.raises(KeyboardInterrupt):
        with held():
            send(signal.SIGTERM)
            done.append(True)
        raise AssertionError("it did not come")
    assert done == [True] and ending.received == signal.SIGTERM


def test_a_signal_that_another_thread_takes_is_held_as_well():
    done, taken = [], threading.Event()
    other = threading.Thread(target=taken.wait, daemon=True)
    other.start()
    with ending_signals() as ending, pytest.raises(KeyboardInterrupt):
        with held():
            signal.pthread_kill(other.ident, signal.SIGTERM)
            for _ in range(12_000):
                if ending.received is None:
                    time.sleep(0.005)
            done.append(ending.received)
            with held():
                done.append(ending.arrivals)
        raise AssertionError("it did not come")
    taken.set()
    assert done == [signal.SIGTERM, 1]


def test_what_is_ignored_stays_ignored_and_threads_leave_signals_alone():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_signals() as ending:
            assert not swallow(signal.SIGHUP)
            assert ending.received is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    seen = []

    def elsewhere():
        with ending_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


@pytest.mark.first_case
@pytest.mark.parametrize("made_of_it", ["pass", "raise ValueError('some library')", "raise"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_command_whose_library_swallows_a_signal_says_so(name, made_of_it, tmp_path):
    program = f"""
import os, signal, sys
from n3ic.cli import main
def command(*_, **__):
    try:
        exec("os.kill(os.getpid(), signal.{name})\\nfor _ in range(1000): pass")
    except BaseException:
        {made_of_it}
signal.signal(signal.{name}, signal.default_int_handler)
main.command_line = lambda words: command
main.main()
"""
    (tmp_path / "program.py").write_text(program)  # as a module: see EndedBySignal
    words = [sys.executable, "-m", "program"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    how = "interrupted" if name == "SIGINT" else f"ended by {name}"
    assert done.stderr == f"n3ic: error: {how}; nothing was left half-written\n"
    assert done.returncode == 128 + getattr(signal, name)
