# SPDX-License-Identifier: Apache-2.0
"""n3icd from Python's side and on another machine: packs, watch, unit and tarball."""

import json
import re
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from n3ic.errors import ExportError, UsageError
from n3ic.meter.standard import standard_spec
from tests.support.n3icd import CLASSES, N3IC, WAIT_S, Daemon, flows, free_port, n3ic, send

UNIT = Path(__file__).parents[3] / "exporters/xdp/daemon/n3icd@.service"


def test_packs_of_the_command_are_loaded(daemon, veth, built, tmp_path):
    out = tmp_path / "n3icd.pack"
    port = free_port()
    running = daemon(pack=out, prometheus=f"127.0.0.1:{port}")
    n3ic(
        "pack", built, "--out", out, "--slot", 5, "--policy", f"{CLASSES[1]}=block:host,ttl=7",
        "--policy", f"{CLASSES[2]}=mark:7", "--rule", f"interface={veth[0]},vlan=none=slot:5",
        "--rule", "prefix=192.0.2.0/24=slot:6", "--flows", 1000, "--max-blocked", 9,
        "--new-flows", 0, "--dry-run", "--clock", "coarse",
    )  # fmt: skip
    running.start()
    reader = running.reader()
    send(veth[1], flows([1000]))
    assert reader.line()["slot"] == 5
    figures = running.figures()
    of = f'{{interface="{veth[0]}"}}'
    assert figures[f"n3ic_xdp_flows_limit{of}"] == 2000
    assert figures[f"n3ic_xdp_blocked_hosts_limit{of}"] == 9
    assert figures[f"n3ic_xdp_dry_run{of}"] == 1
    assert running.end() == 0


def test_packs_that_cannot_be(built, tmp_path, daemon_model):
    out = tmp_path / "p"
    with pytest.raises(UsageError, match="no verdict 'x'"):
        n3ic("pack", built, "--out", out, "--policy", "x=drop")
    with pytest.raises(UsageError, match="--max-blocked"):
        n3ic("pack", built, "--out", out, "--verdicts", 2)
    with pytest.raises(UsageError, match="kernel or coarse"):
        n3ic("pack", built, "--out", out, "--clock", "trailer")
    other = replace(daemon_model, meter=standard_spec(packets=5))
    other.save(tmp_path / "other.n3ic")
    with pytest.raises(UsageError, match="its meter is not that of"):
        n3ic("pack", built, "--out", out, "--model", tmp_path / "other.n3ic")
    with pytest.raises(ExportError):
        n3ic("pack", tmp_path, "--out", out)
    assert not out.exists()


@pytest.mark.slow
def test_two_watches_see_every_flow(daemon, veth, tmp_path, monkeypatch):
    """What n3icd tells, n3ic xdp watch shows; no watch takes flows from another one."""
    monkeypatch.setenv("N3IC_RUN", str(tmp_path))
    path = tmp_path / f"n3icd-{veth[0]}.sock"
    port = free_port()
    running = daemon(socket=path, prometheus=f"127.0.0.1:{port}").start()
    command = [*N3IC, "xdp", "watch", veth[0], "--flows", "30"]
    watches = [
        subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        for options in (["--json"], [])
    ]
    try:
        readers = f'n3ic_xdp_n3icd_readers{{interface="{veth[0]}"}}'
        while running.figures()[readers] < 2:
            assert all(watch.poll() is None for watch in watches)
        send(veth[1], flows(range(1000, 1030)))
        lines, people = (w.communicate(timeout=WAIT_S)[0].splitlines() for w in watches)
    finally:
        for watch in watches:
            watch.kill()
    assert [json.loads(line)["source_port"] for line in lines] == list(range(1000, 1030))
    assert len(people) == 30
    assert people[0].startswith("192.0.2.1:1000 > 192.0.2.2:53 protocol 17, 4 packets, packets: ")
    assert running.end() == 0


def test_the_unit_is_one(tmp_path, built):
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    text = UNIT.read_text().replace("/opt/n3icd", str(built / "daemon"))
    unit = tmp_path / "n3icd@n3test0.service"
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert level, done.stdout
    assert float(level[1]) < 3
    given = re.search(r"^CapabilityBoundingSet=(.*)$", text, re.M)
    assert set(given[1].split()) == {"CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"}


@pytest.fixture(scope="module")
def tarball(hasty, tmp_path_factory):
    made = []
    for name in ("one", "other"):
        place = tmp_path_factory.mktemp("dist") / name
        shutil.copytree(hasty, place)
        for made_before in (*place.glob("*/*.o"), place / "daemon" / "n3icd"):
            made_before.unlink()
        quick = "HOST_FLAGS=-O0 -static -s"  # of a table's daemon, -O2: see test_tables.py
        subprocess.run(["make", "-s", "-C", str(place), quick, "dist"], check=True)
        made.append(place / "n3icd.tar.gz")
    return made


@pytest.mark.slow  # builds all twice
def test_the_tarball_runs_with_the_unit_s_rights(tarball, veth, pins, tmp_path):
    one, other = tarball
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    assert names == [
        f"n3icd/{n}"
        for n in ("n3icd", "idle.o", "n3icd.pack", "n3icd.conf", "n3icd@.service", "meter.o")
    ]
    place = tmp_path / "n3icd"
    assert (
        b"statically linked"
        in subprocess.run(["file", place / "n3icd"], capture_output=True, check=True).stdout
        or b"not a dynamic"
        in subprocess.run(["ldd", place / "n3icd"], capture_output=True, check=False).stderr
    )
    with (place / "n3icd.conf").open("a") as conf:
        conf.write(f"pins = {pins}/n3ic\nsocket = {tmp_path}/n3icd.sock\non-exit = detach\n")
        conf.write(f"control = {tmp_path}/c\nupdates = {tmp_path}/u\nrecords = {tmp_path}/xdp\n")
    unit = (place / "n3icd@.service").read_text()
    rights = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M)[1].lower().split()
    start = re.search(r"^ExecStart=/opt/n3icd/(.*)$", unit, re.M)[1].replace("%I", veth[0])
    bounds = ",".join(["-all", *(f"+{right.removeprefix('cap_')}" for right in rights)])

    binary, *rest = start.split()
    running = Daemon(place, veth[0], tmp_path, pins)
    running.command = lambda *options: [
        "env", "-i", "-C", str(place), "setpriv", f"--bounding-set={bounds}",
        "--inh-caps=-all", f"{place}/{binary}", *options, *rest,
    ]  # fmt: skip
    running.socket = tmp_path / "n3icd.sock"
    try:
        running.start()
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        assert int(re.search(r"CapEff:\s*(\w+)", status)[1], 16) == 1 << 39 | 1 << 38 | 1 << 12
        reader = running.reader()
        send(veth[1], flows(range(1000, 1010)) + flows([9], 2))
        assert len(reader.lines(11)) == 11  # the last one was idle
        assert running.end() == 0
        assert not (pins / "n3ic" / veth[0]).exists()
    finally:
        running.remove()
