# SPDX-License-Identifier: Apache-2.0
"""n3icd beside other XDP programs on an interface, by libxdp's dispatcher."""

import ctypes.util
import json
import re
import shutil
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from n3ic.errors import UsageError
from n3ic.exporters.xdp import libbpf
from n3ic.targets.directory import export
from tests.support.metering import network
from tests.support.n3icd import CLASSES, Daemon, asked, flows, frame, n3ic, repacked, send
from tests.support.wires import ip

OTHER = Path(__file__).with_name("passer.c")
LISTED = re.compile(r"^ => +(\d+) +(\w+) +(\d+) ", re.M)

pytestmark = pytest.mark.usefixtures("clang", "kernel")


class Dispatcher:
    """The dispatcher of an interface with another program, as libxdp's own tool shows it."""

    def __init__(self, interface, other):
        self.interface, self.other = interface, other

    def tool(self, *words):
        command = ("xdp-loader", *map(str, words))
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def load(self, *, needed=True):
        self.tool("load", self.interface, self.other)
        if needed and not self.programs():
            pytest.skip("this kernel lets no dispatcher run XDP programs")
        return self

    def programs(self):
        """Names and numbers of its programs in their order."""
        rows = LISTED.findall(self.tool("status", self.interface))
        return {name: int(number) for _, name, number in rows}

    def seen(self):
        """Packets that the other program saw."""
        with libbpf.program_by_id(self.programs()["passer"]) as program:
            bpf_map = next(m for m in program.maps() if m.name == "seen")
            return int.from_bytes(bpf_map.lookup(0), "little")


@pytest.fixture
def dispatcher(pins, veth, tmp_path, monkeypatch, compile_bpf):
    if not shutil.which("xdp-loader"):
        pytest.skip("needs libxdp (apt-get install libxdp1 xdp-tools)")
    compile_bpf(OTHER, tmp_path / "passer.o")
    monkeypatch.setenv("LIBXDP_BPFFS", str(pins))
    yield Dispatcher(veth[0], tmp_path / "passer.o")
    subprocess.run(["xdp-loader", "unload", veth[0], "--all"], check=False, capture_output=True)
    subprocess.run(["xdp-loader", "clean"], check=False, capture_output=True)


def attached(interface):
    return libbpf.query(socket.if_nametoindex(interface))


@pytest.mark.slow
def test_it_joins_a_dispatcher_and_stays_there_over_a_kill(dispatcher, daemon, veth):
    dispatcher.load()
    running = daemon().start()
    assert "native XDP, in a dispatcher, priority 50, room for" in running.log[-1]
    assert (asked(running)["mode"], asked(running)["priority"]) == ("native", 50)
    record = next((running.folder / "xdp").glob("*/*/n3icd.json"))
    number = dispatcher.programs()["n3ic_meter"]
    assert (record.parent.name, json.loads(record.read_bytes())["priority"]) == (str(number), 50)
    reader = running.reader()
    send(veth[1], flows([1000]) + flows([2000], 2))
    assert reader.line()["packets"] == 4
    assert (asked(running)["counters"]["packets"], dispatcher.seen()) == (6, 6)
    running.end(signal.SIGKILL)
    send(veth[1], flows([2000], 1))
    running.start()
    assert "took over the pinned program, native XDP, in a dispatcher" in running.log[-1]
    assert dispatcher.programs()["n3ic_meter"] == number
    reader = running.reader()
    send(veth[1], flows([2000], 1))
    assert reader.line()["packets"] == 4
    assert running.end() == 0
    assert running.run("--remove").returncode == 0
    assert list(dispatcher.programs()) == ["passer"]
    send(veth[1], [frame(1)])
    assert dispatcher.seen() == 9


@pytest.mark.slow
@pytest.mark.parametrize(("priority", "behind"), [(10, 0), (90, 8)])
def test_the_order_is_that_of_priorities(
    dispatcher, daemon, veth, built, daemon_model, tmp_path, priority, behind
):
    """What is dropped reaches no program behind."""
    dispatcher.load()
    path = repacked(built, daemon_model, tmp_path / "p", policies=["undecided=drop"])
    running = daemon(pack=path, priority=priority).start()
    assert (next(iter(dispatcher.programs())) == "n3ic_meter") == (priority < 50)
    send(veth[1], [frame(1000 + port) for port in range(8)])
    assert (asked(running)["counters"]["dropped"], dispatcher.seen()) == (8, behind)
    command = [*running.command()[:1], "unload", "-c", running.conf, "-i", veth[0]]
    subprocess.run(command, check=True, capture_output=True)
    assert running.wait() == 0
    assert list(dispatcher.programs()) == ["passer"]


@pytest.mark.slow
def test_the_first_one_leaves_room_for_others(dispatcher, daemon, veth):
    running = daemon(priority=20, on_exit="detach").start()
    if "alone there" in "".join(running.log):
        assert "n3icd: " + veth[0] + ": native XDP, room for" in running.log[-1]
        assert "priority" not in asked(running)
        assert running.end() == 0
        assert attached(veth[0]) is None
        pytest.skip("this kernel lets no dispatcher run XDP programs")
    before = attached(veth[0]).program_id
    dispatcher.load()  # in a new dispatcher, at which n3icd looks within a second
    assert attached(veth[0]).program_id != before
    reader = running.reader()
    for port in range(1000, 1003):
        send(veth[1], flows([port]))
        assert reader.line()["packets"] == 4
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(timeout=1)
    assert (asked(running)["counters"]["packets"], dispatcher.seen()) == (12, 12)
    dispatcher.tool("unload", veth[0], "-i", dispatcher.programs()["passer"])
    send(veth[1], flows([1003]))
    assert reader.line()["packets"] == 4
    assert running.end() == 0
    assert attached(veth[0]) is None


@pytest.mark.slow
def test_a_program_that_was_taken_off_comes_back_with_its_flows(dispatcher, daemon, veth):
    dispatcher.load()
    running = daemon(priority=7).start()
    send(veth[1], flows([1000], 2))
    dispatcher.tool("unload", veth[0], "-i", dispatcher.programs()["n3ic_meter"])
    assert running.wait() == 1
    assert "its program was detached" in running.log[-1]
    running.start()
    assert (
        "took over the pinned program, native XDP, in a dispatcher, priority 7" in running.log[-1]
    )
    assert list(dispatcher.programs()) == ["n3ic_meter", "passer"]
    reader = running.reader()
    send(veth[1], flows([1000], 2))
    assert reader.line()["packets"] == 4
    running.end(signal.SIGKILL)
    running.start()  # on the pins of the program that was attached again
    assert asked(running)["counters"]["packets"] == 4
    ip("del", veth[0])
    assert running.wait() == 1
    ip("add", veth[0], "type", "veth", "peer", "name", veth[1])
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        ip("set", name, "up")
    running.start()
    assert list(dispatcher.programs()) == ["n3ic_meter"]
    reader = running.reader()
    send(veth[1], flows([1001]))
    assert reader.line()["packets"] == 4
    assert running.end() == 0


@pytest.mark.slow
def test_a_program_without_its_pins_is_named(dispatcher, daemon, veth, pins):
    dispatcher.load()
    running = daemon().start()
    running.end(signal.SIGKILL)
    shutil.rmtree(pins / "n3ic" / veth[0])
    done, number = running.run(), dispatcher.programs()["n3ic_meter"]
    assert done.returncode == 1
    assert f"xdp-loader unload -i {number} {veth[0]}" in done.stderr
    dispatcher.tool("unload", veth[0], "-i", number)
    assert running.start().end() == 0


@pytest.mark.slow
def test_a_program_of_other_networks_succeeds_in_a_dispatcher(
    dispatcher, daemon, veth, daemon_model, tmp_path
):
    dispatcher.load()
    running = daemon(priority=10).start()
    send(veth[1], flows([1000], 2))
    before = dispatcher.programs()["n3ic_meter"]
    assert running.end() == 0
    wide = replace(network(daemon_model.meter, 7), classes=CLASSES)
    export(wide, "xdp", tmp_path / "wide", verify=False)
    wanted = ("daemon/n3icd", "meter/meter.o")
    make = ["make", "-s", "-C", str(tmp_path / "wide"), "HOST_FLAGS=-O0", *wanted]
    subprocess.run(make, check=True)
    following = daemon(tmp_path / "wide", priority=10)
    following.command = lambda *words: Daemon.command(following, *(words or ("--succeed",)))
    following.start()
    assert "packets pass unmetered for a moment" in "".join(following.log)
    after = dispatcher.programs()
    assert (list(after), after["n3ic_meter"] != before) == (["n3ic_meter", "passer"], True)
    assert asked(following)["counters"]["packets"] == 2
    reader = following.reader()
    send(veth[1], flows([1000], 2))
    assert reader.line()["model"] == wide.digest[:16]
    assert asked(following)["counters"]["packets"] == 4
    assert following.end() == 0


def test_without_libxdp_it_says_what_to_install(daemon, veth, tmp_path, monkeypatch):
    """A library of its name without its functions stands in its place, as an old one would."""
    made = ["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(tmp_path / "libxdp.so.1")]
    subprocess.run(made, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    done = daemon(priority=50).run()
    assert (done.returncode, "apt-get install libxdp1" in done.stderr) == (1, True), done.stderr
    assert attached(veth[0]) is None


@pytest.mark.slow
def test_n3ic_loads_beside_another_program(dispatcher, built, veth, run_folder):
    dispatcher.load()
    assert "in a dispatcher, priority 10, model" in n3ic("load", veth[0], built, "--priority", 10)
    assert list(dispatcher.programs()) == ["n3ic_meter", "passer"]
    assert "in a dispatcher, priority 10" in n3ic("status", veth[0])
    assert "unloaded" in n3ic("unload", veth[0])
    assert list(dispatcher.programs()) == ["passer"]


def test_without_libxdp_a_line_says_what_to_install(built, veth, run_folder, pins):
    if ctypes.util.find_library("xdp"):
        pytest.skip("libxdp is here")
    with pytest.raises(UsageError, match=r"needs libxdp 1\.3 .*apt-get install libxdp1"):
        n3ic("load", veth[0], built, "--priority", 50)
    assert attached(veth[0]) is None
