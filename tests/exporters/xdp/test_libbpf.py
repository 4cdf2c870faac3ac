# SPDX-License-Identifier: Apache-2.0
"""The binding against the kernel: maps, test runs, the verifier's words, interfaces."""

import errno
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from n3ic.errors import MissingDependencyError
from n3ic.exporters.xdp import libbpf
from n3ic.exporters.xdp.libbpf import BpfError, BpfObject, RingBuffer, VerifierError

SMALL = Path(__file__).with_name("small.c")
FRAME = bytes(range(64))
PASS = 2


@pytest.fixture(scope="module")
def image(compile_bpf, kernel, tmp_path_factory):
    return compile_bpf(SMALL, tmp_path_factory.mktemp("small") / "small.o")


@pytest.fixture
def small(image):
    with BpfObject(image, "small.o", entries={"table": 6000}) as loaded:
        yield loaded


def test_a_program_runs_on_a_packet_and_counts_on_each_cpu(small):
    run = small.programs["count"].test_run(FRAME, repeat=5, output=True)
    assert (run.result, run.data) == (PASS, b"\x23" + FRAME[1:])
    counted = [int.from_bytes(v, "little") for v in small.maps["counters"].each_cpu(0)]
    assert (sum(counted), len(counted)) == (5, libbpf.cpus())
    assert small.maps["counters"].each_cpu(1) == [bytes(8)] * libbpf.cpus()


def test_what_the_verifier_followed_is_told(small):
    program = small.programs["count"]
    assert program.verified > 10
    assert f"processed {program.verified} insns" in program.log


def test_global_data_is_set_before_loading(image):
    with BpfObject(image, "small.o", values={".rodata": struct.pack("=I", 7)}) as loaded:
        loaded.programs["count"].test_run(FRAME)
        assert sum(v[0] for v in loaded.maps["counters"].each_cpu(0)) == 7


def test_a_map_of_maps_changes_what_the_program_reads(small):
    for factor in (100, 1000):
        with libbpf.create_map(libbpf.ARRAY, "model", 4, 8, 1) as model:
            model.update(0, struct.pack("=Q", factor))
            small.maps["models"].update(0, model.fd)
            number = model.id
        small.programs["count"].test_run(FRAME)
    assert small.maps["models"].lookup(0) == struct.pack("=I", number)
    with libbpf.map_by_id(number) as inner_map:
        assert inner_map.lookup(0) == struct.pack("=Q", 1000)
    assert sum(int.from_bytes(v, "little") for v in small.maps["counters"].each_cpu(0)) == 1100


def test_a_hash_map_is_read_whole(small):
    table = small.maps["table"]
    assert table.entries == 6000
    want = {struct.pack("=Q", i): struct.pack("=I", 3 * i) for i in range(5000)}
    for key, value in want.items():
        table.update(key, value, libbpf.NEW)
    assert dict(table.items()) == want
    assert set(table.keys()) == set(want)
    with pytest.raises(BpfError, match="there already") as caught:
        table.update(bytes(8), bytes(4), libbpf.NEW)
    assert caught.value.number == errno.EEXIST
    assert table.delete(bytes(8))
    assert not table.delete(bytes(8))
    assert table.lookup(bytes(8)) is None
    with pytest.raises(BpfError, match="has 8 bytes, got 3"):
        table.lookup(b"abc")


def test_records_come_through_the_ring(small):
    with RingBuffer(small.maps["events"]) as ring:
        assert ring.poll() == []
        small.programs["count"].test_run(FRAME, repeat=3)
        assert ring.poll(10) == [struct.pack("=Q", i) for i in (1, 2, 3)]


def test_the_verifiers_refusal_ends_with_its_log(compile_bpf, kernel, tmp_path):
    image = compile_bpf(SMALL, tmp_path / "bad.o", "-DREFUSED")
    with pytest.raises(
        VerifierError, match=r"refuses the program; its log ends:[\s\S]*invalid"
    ) as e:
        BpfObject(image, "bad.o")
    assert "r0 = *(u8 *)(r1 +0)" in e.value.log  # the trace, not the figures alone


def test_without_perfmon_the_refusal_says_what_is_missing(compile_bpf, kernel, tmp_path):
    """CAP_BPF and CAP_NET_ADMIN load a program, but the verifier trusts it less."""
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv (apt-get install util-linux)")
    compile_bpf(SMALL, tmp_path / "bad.o", "-DREFUSED")
    rights = "+bpf,+net_admin,+dac_read_search"
    user = ("--reuid=65534", "--regid=65534", "--clear-groups")
    command = ["setpriv", *user, f"--inh-caps={rights}", f"--ambient-caps={rights}"]
    code = (
        "import pathlib, sys; from n3ic.exporters.xdp.libbpf import BpfObject; "
        "BpfObject(pathlib.Path(sys.argv[1]).read_bytes(), sys.argv[1])"
    )
    program = [sys.executable, "-c", code, str(tmp_path / "bad.o")]
    message = subprocess.run([*command, *program], capture_output=True, text=True).stderr
    if message.startswith("setpriv"):
        pytest.skip(message.strip())
    assert "refuses the program, and allows less without CAP_PERFMON; its log ends:" in message


@pytest.mark.parametrize("image", [b"", b"no object", b"\x7fELF" + bytes(200)])
def test_a_damaged_object_is_an_error(kernel, image):
    with pytest.raises(BpfError, match=r"bad\.o: libbpf cannot read this object"):
        BpfObject(image, "bad.o")


def test_an_unknown_map_is_named(image):
    with pytest.raises(BpfError, match="no map 'flows'"):
        BpfObject(image, "small.o", entries={"flows": 1})


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_an_interface_has_one_program(small, veth, mode):
    index = socket.if_nametoindex(veth[0])
    program = small.programs["count"]
    assert libbpf.query(index) is None
    libbpf.attach(index, program, mode)
    attached = libbpf.query(index)
    assert (attached.program_id, attached.mode) == (program.id, mode)
    with pytest.raises(BpfError, match=f"{veth[0]}.*attached there already"):
        libbpf.attach(index, program, mode)
    with libbpf.program_by_id(attached.program_id) as same:
        assert same.tag == program.tag
        libbpf.attach(index, program, mode, replaces=same)
    libbpf.detach(index, mode, program)
    assert libbpf.query(index) is None


def test_without_rights_the_error_says_which(small, veth):
    pid = os.fork()
    if not pid:  # the child has no rights, and tells by its exit status
        os.setuid(65534)
        try:
            libbpf.create_map(libbpf.ARRAY, "x", 4, 4, 1)
        except BpfError as error:
            os._exit(0 if "run as root, or with CAP_BPF" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0


def test_without_libbpf_the_package_is_named(monkeypatch):
    def missing(*_, **__):
        raise OSError

    monkeypatch.setattr("ctypes.CDLL", missing)
    with pytest.raises(MissingDependencyError, match="apt-get install libbpf1"):
        libbpf.libbpf.__wrapped__()
