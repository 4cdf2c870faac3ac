# SPDX-License-Identifier: Apache-2.0
"""The program beside another one on an interface, by libxdp's dispatcher."""

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from n3ic.errors import MissingDependencyError, UsageError
from n3ic.exporters.xdp import libbpf, source
from n3ic.exporters.xdp.exported import read_program
from n3ic.exporters.xdp.plan import Choices
from n3ic.meter.standard import standard_spec
from n3ic.systems.xdp import deployment, dispatcher, hooks
from n3ic.systems.xdp.program_record import Interface
from n3ic.systems.xdp.status import status
from n3ic.targets.directory import export
from tests.support.metering import network
from tests.support.n3icd import frame, mount, send, unmount
from tests.support.wires import link

SPEC = standard_spec(packets=4)
OTHER = Path(__file__).with_name("passer.c")

pytestmark = pytest.mark.usefixtures("clang", "kernel")


@pytest.fixture(scope="module")
def exported(tmp_path_factory, clang):
    out = tmp_path_factory.mktemp("dispatcher") / "export"
    export(network(SPEC), "xdp", out, verify=False)
    built = source.compile_program(read_program(out / "meter"), source.METER)
    (out / "meter/meter.o").write_bytes(built)
    return out


@pytest.fixture(scope="module")
def bpffs(tmp_path_factory):
    """Where libxdp pins; it asks for the place once in a process."""
    found = tmp_path_factory.mktemp("dispatcher") / "bpf"
    if not mount(found):
        pytest.skip("needs the right to mount a BPF file system")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIBXDP_BPFFS", str(found))
        yield
    unmount(found)


@pytest.fixture
def place(bpffs, in_namespace, tmp_path, monkeypatch, compile_bpf):
    """A function that calls another one where a link, libxdp's pins and another program are."""
    if dispatcher.libxdp() is None or not shutil.which("xdp-loader"):
        pytest.skip("needs libxdp (apt-get install libxdp1 xdp-tools)")
    compile_bpf(OTHER, tmp_path / "passer.o")
    monkeypatch.setenv("N3IC_RUN", str(tmp_path / "run"))

    def run(check):
        def inside():
            link("n3a", "n3b")
            try:
                check(Interface.named("n3b"), tmp_path / "passer.o")
            finally:
                subprocess.run(["xdp-loader", "unload", "n3b", "--all"], check=False)

        in_namespace(inside)

    return run


def load_other(path, *, needed=True):
    subprocess.run(["xdp-loader", "load", "n3b", str(path)], check=True)
    found = dispatcher.dispatched(socket.if_nametoindex("n3b"))
    if needed and found is None:
        pytest.skip("this kernel lets no dispatcher run XDP programs")
    return found


def seen():
    """Packets that the other program saw."""
    programs = dispatcher.dispatched(socket.if_nametoindex("n3b")).programs
    number = next(number for number, name in programs.items() if name == "passer")
    with libbpf.program_by_id(number) as program:
        found = next(m for m in program.maps() if m.name == "seen")
        return int.from_bytes(found.lookup(0), "little")


@pytest.mark.parametrize("priority", [10, 90])
def test_a_program_joins_with_its_maps(place, compile_bpf, tmp_path, priority):
    """libxdp loads a program anew, which goes on with the maps of the one that was loaded."""
    image = compile_bpf(OTHER, tmp_path / "ours.o", "-DNAME=n3ic_meter")

    def check(interface, other):
        load_other(other)
        with libbpf.BpfObject(image, "ours.o") as ours:
            ours.maps["seen"].update(0, (100).to_bytes(8, "little"))
            program = ours.programs["n3ic_meter"]
            with dispatcher.attached(interface.index, image, program, "native", priority) as made:
                number = made.id
            found = hooks.query(interface.index)
            assert found == libbpf.AttachedProgram(number, "native", dispatched=True)
            send("n3a", [frame(port) for port in range(1000, 1010)])
            assert int.from_bytes(ours.maps["seen"].lookup(0), "little") == 110
            assert seen() == 10
            order = list(dispatcher.dispatched(interface.index).programs.values())
            assert order == sorted(["n3ic_meter", "passer"], reverse=priority > 50)
            hooks.detach(interface.index, found, program)
            send("n3a", [frame(1)])
            assert int.from_bytes(ours.maps["seen"].lookup(0), "little") == 110
            assert seen() == 11

    place(check)


@pytest.mark.slow
def test_two_programs_of_one_interface_both_run(place, exported):
    def check(interface, other):
        load_other(other)
        loaded = deployment.load(interface, exported)
        assert (loaded.record.mode, loaded.record.priority) == ("native", 50)
        send("n3a", [frame(port) for port in range(1000, 1010)])
        found = status(interface)
        assert (found.packets, found.started, found.beside) == (10, 10, ("passer",))
        assert seen() == 10
        deployment.update(interface, network(SPEC, 1))  # of another structure: a new program
        send("n3a", [frame(port) for port in range(1000, 1010)])
        found = status(interface)
        assert (found.packets, found.started, seen()) == (20, 10, 20)
        assert deployment.unload(interface)
        send("n3a", [frame(1)])
        assert seen() == 21
        assert list(dispatcher.dispatched(interface.index).programs.values()) == ["passer"]

    place(check)


@pytest.mark.slow
@pytest.mark.parametrize(("priority", "behind"), [(10, 0), (90, 8)])
def test_the_order_is_that_of_priorities(place, exported, priority, behind):
    """What is dropped reaches no program behind."""

    def check(interface, other):
        load_other(other)
        policies = ("undecided=drop",)
        deployment.load(interface, exported, Choices(policies=policies), priority=priority)
        send("n3a", [frame(1000 + port) for port in range(8)])
        assert (status(interface).dropped, seen()) == (8, behind)
        assert deployment.unload(interface)

    place(check)


@pytest.mark.slow
def test_the_first_one_leaves_room_for_others(place, exported):
    def check(interface, other):
        loaded = deployment.load(interface, exported, priority=20)
        if loaded.record.priority is None:  # it runs alone, and says so
            assert "alone" in loaded.note
            assert deployment.query(interface.index).program_id == loaded.record.program_id
            assert status(interface).beside == ()
            assert deployment.unload(interface)
            assert deployment.query(interface.index) is None
            pytest.skip("this kernel lets no dispatcher run XDP programs")
        load_other(other)
        send("n3a", [frame(port) for port in range(1000, 1010)])
        assert (status(interface).packets, seen()) == (10, 10)
        assert deployment.unload(interface)

    place(check)


def test_a_program_that_shares_with_nobody_is_named(
    in_namespace, exported, compile_bpf, tmp_path, monkeypatch
):
    monkeypatch.setenv("N3IC_RUN", str(tmp_path / "run"))
    image = compile_bpf(OTHER, tmp_path / "passer.o")

    def check():
        link("n3a", "n3b")
        interface = Interface.named("n3b")
        with libbpf.BpfObject(image, "passer.o") as other:
            libbpf.attach(interface.index, other.programs["passer"], "native")
            with pytest.raises(UsageError, match=r"\(passer\).*xdp-loader"):
                deployment.load(interface, exported)

    in_namespace(check)


@pytest.mark.slow
def test_without_libxdp_a_program_stands_alone(in_namespace, exported, tmp_path, monkeypatch):
    monkeypatch.setenv("N3IC_RUN", str(tmp_path / "run"))
    monkeypatch.setattr(dispatcher, "libxdp", lambda: None)

    def check():
        link("n3a", "n3b")
        interface = Interface.named("n3b")
        with pytest.raises(MissingDependencyError, match="apt-get install libxdp1"):
            deployment.load(interface, exported, priority=50)
        assert deployment.query(interface.index) is None
        assert deployment.load(interface, exported).record.priority is None
        assert deployment.unload(interface)

    in_namespace(check)
