# SPDX-License-Identifier: Apache-2.0
"""What the tests of the XDP target need of the machine."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from n3ic.meter.standard import standard_spec
from tests.support.xdp_machine import (
    clang,
    compile_bpf,
    in_namespace,
    kernel,
    pins,
    run_folder,
    tun,
    veth,
)

__all__ = [
    "clang", "compile_bpf", "in_namespace", "kernel", "pins", "run_folder", "tun", "veth",
]  # fmt: skip


SECOND = 10**6  # in units of the meter
CHECKED = "-O0 -g -fsanitize=address,undefined -fno-sanitize-recover=all"


@pytest.fixture(scope="session")
def daemon_model():
    from tests.support.metering import network
    from tests.support.n3icd import CLASSES

    spec = replace(standard_spec(packets=4), idle_timeout=60 * SECOND, cache_flows=8192)
    return replace(network(spec), classes=CLASSES, name='net "0"')


@pytest.fixture(scope="session")
def built(daemon_model, made_once, clang):
    """Its export with n3icd, which the processes of a run of the tests share."""
    from tests.support.n3icd import build

    wanted = ("daemon/n3icd", "shunted/shunted", "meter/meter.o")
    return made_once("n3icd", lambda at: build(at, daemon_model, *wanted, flags=CHECKED)) / "export"


@pytest.fixture(scope="session")
def hasty_model(daemon_model):
    """One whose many flows end after a second, for tests that wait for it."""
    spec = replace(daemon_model.meter, idle_timeout=SECOND, cache_flows=65_536)
    return replace(daemon_model, meter=spec)


@pytest.fixture(scope="session")
def hasty(hasty_model, built, made_once):
    """Its export; the sanitizers are in the other one's."""
    from tests.support.n3icd import build

    return made_once("n3icd-hasty", lambda at: build(at, hasty_model)) / "export"


@pytest.fixture
def daemon(built, pins, veth, tmp_path):
    """A function that makes daemons; what is left of them goes at the end."""
    from tests.support.n3icd import Daemon

    made = []
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")

    def make(of=built, **settings):
        made.append(Daemon(of, veth[0], tmp_path, pins, **settings))
        return made[-1]

    yield make
    for one in made:
        one.remove()


@pytest.fixture
def refuse_frags(tmp_path, monkeypatch):
    """A driver that refuses the first program until the returned function is called."""
    made = tmp_path / "refuse_frags.so"
    source = Path(__file__).with_name("refuse_frags.c")
    command = ["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", str(made), str(source), "-ldl"]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(made))
    monkeypatch.setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0")
    return lambda: monkeypatch.delenv("LD_PRELOAD")
