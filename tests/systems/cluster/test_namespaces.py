# SPDX-License-Identifier: Apache-2.0
"""A ring between network namespaces, as between machines: datagrams over virtual links."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from n3ic.model.random_models import random_model

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow  # starts a Dask cluster
SCHEDULER = "from distributed.cli.dask_scheduler import main; main()"
WORKER = "from distributed.cli.dask_worker import main; main()"


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


@contextmanager
def program(*words):
    process = subprocess.Popen(
        [*map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(name="hosts")
def namespaces():
    """Two namespaces at a bridge of this one; gives their names and the bridge's address."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip")
    tag, net = f"n3{os.getpid() % 100_000}", f"10.{97 + os.getpid() % 100}.0"
    with ExitStack() as stack:
        ip("link", "add", f"{tag}br", "type", "bridge")
        stack.callback(ip, "link", "del", f"{tag}br")
        ip("addr", "add", f"{net}.254/24", "dev", f"{tag}br")
        ip("link", "set", f"{tag}br", "up")
        names = [f"{tag}{i}" for i in (1, 2)]
        for i, name in enumerate(names, 1):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            ip("link", "add", f"{tag}v{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            stack.callback(ip, "link", "del", f"{tag}v{i}")
            ip("link", "set", f"{tag}v{i}", "master", f"{tag}br", "up")
            ip("-n", name, "addr", "add", f"{net}.{i}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names, f"{net}.254"


def test_a_ring_over_links_between_namespaces(hosts, tmp_path):
    names, address = hosts
    random_model((1000, 300, 40, 3), np.random.default_rng(0)).save(tmp_path / "m.n3ic")
    scheduler_file = tmp_path / "scheduler.json"
    with ExitStack() as stack:
        started = (
            "--host",
            address,
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            scheduler_file,
        )
        stack.enter_context(program(sys.executable, "-c", SCHEDULER, *started))
        deadline = time.monotonic() + 600
        while not scheduler_file.is_file() and time.monotonic() < deadline:
            time.sleep(0.2)
        scheduler = json.loads(scheduler_file.read_text())["address"]
        for name in names:
            words = ("-c", WORKER, scheduler, "--no-dashboard", "--no-nanny", "--nthreads", "2")
            stack.enter_context(program("ip", "netns", "exec", name, sys.executable, *words))
        from distributed import Client

        deadline = time.monotonic() + 600
        with Client(scheduler, timeout=60) as client:
            while len(client.scheduler_info()["workers"]) < 2 and time.monotonic() < deadline:
                time.sleep(0.2)
        words = ("--nodes", "3", "--rows", "40", "--loss", "0.01", "--dask", scheduler)
        done = subprocess.run(
            [sys.executable, "-m", "n3ic", "cluster", "run", "m.n3ic", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr
    assert "40 of 40 rows" in done.stdout
