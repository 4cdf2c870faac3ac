# SPDX-License-Identifier: Apache-2.0
"""Packets in shared memory, as one function sees them that lives in the test's own process."""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, N3icError, UsageError
from n3ic.exporters.dpdk.application import require_dpdk
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.systems.stream.functions.chain import ChainFunction, FunctionChain
from n3ic.systems.stream.functions.manager import FunctionManager
from n3ic.systems.stream.functions.native import function_library
from n3ic.systems.stream.functions.packets import DROP, HOLD, PASS, SharedPackets, actions_of
from n3ic.targets.fuzz_traffic import pcap

try:
    require_dpdk()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

WAIT_US = 100_000
ONE = ChainFunction("one", "count", tickets=256, hang_s=600)
NULL = FunctionChain(("net_null0,size=60",), ("one",), (ONE,))


def capture_of(path, count, seed=1):
    """A capture of random frames; returns the frames."""
    rng = np.random.default_rng(seed)
    frames = [rng.integers(0, 256, 14 + i % 1400, dtype=np.uint8).tobytes() for i in range(count)]
    stamped = [(data, len(data), 1_700_000_000_000_000 + 7 * i) for i, data in enumerate(frames)]
    path.write_bytes(pcap(LINK_ETHERNET, stamped, 1000, "<"))
    return frames


def captured(path, **more):
    return replace(NULL, ports=(f"net_pcap0,rx_pcap={path}",), until_end=True, **more)


@contextmanager
def attached(manager, name="one", batch=64):
    """A function in this process; the manager begins to receive."""
    with SharedPackets(str(manager.path), name, batch, manager.prefix) as shared:
        manager.request("receive")
        yield shared


def arriving(shared):
    """Views until the function is to end."""
    while True:
        stopping = shared.stopping  # read first: once set, the ring holds all packets
        view = shared.receive(WAIT_US)
        if len(view):
            yield view
        elif stopping:
            return
        else:
            shared.check_manager()


def mapping_of(address):
    """Permissions and name of the mapping that holds an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            return line.split()[1], line.split(maxsplit=5)[-1]
    return None


@pytest.mark.slow
def test_a_view_is_the_packets_where_the_manager_has_them(tmp_path):
    frames = capture_of(tmp_path / "in.pcap", 2000)
    seen, times = [], []
    with FunctionManager(captured(tmp_path / "in.pcap")) as manager, attached(manager) as shared:
        where = mapping_of(shared.data.ctypes.data)
        for view in arriving(shared):
            for i in range(len(view)):
                packet = view.packet(i)
                assert packet.base is not None and not packet.flags.writeable
                assert mapping_of(packet.ctypes.data) == where
                seen.append(packet.tobytes())
            times += view.time.tolist()
            assert view.length.tolist() == view.captured.tolist()
            shared.give_back(view.descriptors, np.full(len(view), PASS, dtype=np.uint8))
        shared.__exit__()
        last = manager.last_status()
    assert where[0] == "r--s" and "memfd:packets" in where[1]  # no function can write packets
    assert seen == frames
    assert times == [1_700_000_000_000_000_000 + 7000 * i for i in range(2000)]
    assert last["balance"]["ended"] == last["received"] == 2000
    assert last["buffers"]["free"] == last["buffers"]["all"]
    assert last["memory"] == "file"


def test_descriptors_that_are_not_out_are_refused():
    chain = replace(NULL, packets=5000)
    with FunctionManager(chain) as manager, attached(manager) as shared:
        views = arriving(shared)
        view = next(views)
        other = view.descriptors ^ np.uint64(1 << 40)  # of another use of the ticket
        beyond = np.uint64([(1 << 32) | 256, (1 << 32) | 0xFFFFFF])  # there are 256 tickets
        for wrong in (other, beyond):
            shared.give_back(wrong, np.full(len(wrong), PASS, dtype=np.uint8))
        n = len(view) + len(beyond)
        shared.give_back(view.descriptors, np.full(len(view), DROP, dtype=np.uint8))
        again = view.descriptors[:3].copy()
        shared.give_back(again, np.full(3, PASS, dtype=np.uint8))
        dropped, view = len(view), next(views)
        shared.give_back(view.descriptors, np.full(len(view), 77, dtype=np.uint8))  # no such route
        strange = len(view)
        for view in views:
            shared.give_back(view.descriptors, np.full(len(view), PASS, dtype=np.uint8))
        shared.__exit__()
        last = manager.last_status()
    (figures,) = last["functions"]
    assert figures["damaged_descriptors"] == n + 3
    assert figures["dropped"] == dropped and figures["no_such_action"] == strange
    balance = last["balance"]
    assert last["received"] == 5000 and balance["unaccounted"] == 0
    assert balance["ended"] + balance["full"] == 5000 - dropped - strange
    assert last["buffers"]["free"] == last["buffers"]["all"]


def test_packets_may_be_held_and_given_back_later(tmp_path):
    frames = capture_of(tmp_path / "in.pcap", 500)
    with FunctionManager(captured(tmp_path / "in.pcap")) as manager, attached(manager) as shared:
        waiting_packets = []
        for view in arriving(shared):
            hold = np.arange(len(view)) % 8 == 0
            waiting_packets += zip(
                view.descriptors[hold].tolist(), view.offset[hold].tolist(), strict=True
            )
            shared.give_back(view.descriptors, np.where(hold, HOLD, DROP).astype(np.uint8))
        headers = [
            shared.data[at : at + 14].tobytes() for _, at in waiting_packets
        ]  # untouched since
        in_functions = 500
        while in_functions > len(
            waiting_packets
        ):  # the manager takes back what was dropped at its own pace
            in_functions = manager.status()["balance"]["in_functions"]
        assert in_functions == len(waiting_packets) > 60
        shared.give_back(
            np.uint64([d for d, _ in waiting_packets[1:]]),
            np.full(len(waiting_packets) - 1, PASS, "u1"),
        )
        shared.__exit__()
        last = manager.last_status()
    assert {*headers} <= {f[:14] for f in frames} and len({*headers}) == len(waiting_packets)
    assert last["balance"]["dropped"] == 500 - len(waiting_packets)
    assert last["balance"]["ended"] == len(waiting_packets) - 1
    assert last["functions"][0]["lost"]["stopped"] == 1  # the one that it kept
    assert last["balance"]["unaccounted"] == 0
    assert last["buffers"]["free"] == last["buffers"]["all"]


def test_a_slow_function_loses_its_own_packets_alone():
    """It takes nothing: its tickets run out, and the other gets every packet."""
    other = replace(ONE, name="other", tickets=4096)
    chain = replace(NULL, function=(ONE, other), receive=("one", "other"), packets=4000)
    with (
        FunctionManager(chain) as manager,
        SharedPackets(str(manager.path), "one", 64) as slow,
        attached(manager, "other") as shared,
    ):
        for view in arriving(shared):
            shared.give_back(view.descriptors, np.full(len(view), PASS, dtype=np.uint8))
        shared.__exit__()
        slow.__exit__()
        last = manager.last_status()
    one, other = last["functions"]
    assert other["given"] == other["passed"] == 4000 and not other["full"]
    assert one["given"] == 256 == sum(one["lost"].values()) and one["full"] == 4000 - 256
    assert last["balance"]["unaccounted"] == 0
    assert last["buffers"]["free"] == last["buffers"]["all"]


def test_what_a_function_gave_back_before_it_went_waits_for_room(tmp_path):
    capture_of(tmp_path / "in.pcap", 500)
    functions = (replace(ONE, tickets=1024, next="other"), replace(ONE, name="other", tickets=64))
    chain = captured(tmp_path / "in.pcap", function=functions)
    with FunctionManager(chain) as manager, SharedPackets(str(manager.path), "other", 64) as after:
        with attached(manager, batch=600) as shared:
            views = []
            while sum(map(len, views)) < 500:
                views.append(shared.receive(WAIT_US).descriptors.copy())
            gathered = np.concatenate(views)
            shared.give_back(gathered, np.full(500, PASS, dtype=np.uint8))
        for view in arriving(after):
            after.give_back(view.descriptors, np.full(len(view), PASS, dtype=np.uint8))
        after.__exit__()
        last = manager.last_status()
    assert last["balance"]["ended"] == 500 and not last["balance"]["full"]
    assert last["functions"][0]["passed"] == 500


def test_a_second_process_of_a_function_is_refused_and_a_foreign_one():
    with FunctionManager(NULL) as manager, SharedPackets(str(manager.path), "one", 64):
        for name, why in (("one", "runs already"), ("two", "no such function")):
            with pytest.raises(UsageError, match=why):
                SharedPackets(str(manager.path), name, 64)


def test_actions_of_a_batch_are_checked():
    assert actions_of(None, 3).tolist() == [PASS] * 3
    assert actions_of(DROP, 2).tolist() == [DROP] * 2
    assert actions_of(np.int64([0, 255]), 2).tolist() == [PASS, HOLD]
    for wrong in ([0, 1, 2], [256, 0], [-1, 0], [0.5, 0], "drop", [[0], [1]]):
        with pytest.raises(N3icError, match="on_batch"):
            actions_of(wrong, 2)


# --- functions that die ------------------------------------------------------------------------


def dies(manager, how):
    """Attach, receive, and end by SIGKILL; runs in a process of its own."""
    try:
        os.environ |= manager.environment
        shared = SharedPackets(str(manager.path), "one", 64, manager.prefix)
        while not len(shared.receive(WAIT_US)):
            pass
        if how == "scribble":
            shared._area[:4096] = 255
        if how != "kill":
            signal.pause()  # the manager kills it
        os.kill(os.getpid(), signal.SIGKILL)
    finally:
        os._exit(77)


def deaths(manager, count, how="kill"):
    """Processes that attach one after the other."""
    function_library(secondary=bool(manager.prefix))  # built before
    for _ in range(count):
        child = os.fork()
        if not child:
            dies(manager, how)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status


def test_a_long_name_of_the_folder_for_temporary_files_is_no_hindrance(tmp_path, monkeypatch):
    """The manager's socket has a name of at most 107 bytes."""
    long = tmp_path / ("n" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with FunctionManager(NULL) as manager:
        assert manager.status()["functions"][0]["state"] == "absent"
    assert not manager.path.parent.exists()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [5, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_no_buffer_leaks_after_many_kills(kills):
    with FunctionManager(NULL) as manager:
        manager.request("receive")
        deaths(manager, kills)
        before = manager.status()
        manager.request("end")
        last = manager.last_status()
    (one,) = last["functions"]
    assert before["functions"][0]["state"] == "absent"
    assert one["ends"]["died"] == one["starts"] == kills
    assert one["lost"]["died"] == one["given"] >= kills
    assert last["balance"]["unaccounted"] == 0
    assert last["received"] == one["given"] + one["absent"] + one["full"]
    assert last["buffers"]["free"] == last["buffers"]["all"]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "why"), [("hang", "hung"), ("scribble", "damaged")])
def test_a_function_that_hangs_or_writes_over_its_rings_is_killed(how, why):
    """Another goes on with all of its packets."""
    other = replace(ONE, name="other", tickets=1024)
    functions = (replace(ONE, hang_s=0.2 if how == "hang" else 600.0), other)
    chain = replace(NULL, function=functions, receive=("one", "other"))
    with FunctionManager(chain) as manager, attached(manager, "other") as shared:
        child = os.fork()
        if not child:  # serves while the parent waits
            try:
                for view in arriving(shared):
                    shared.give_back(view.descriptors, np.full(len(view), PASS, dtype=np.uint8))
            finally:
                os._exit(0)
        deaths(manager, 2, how)
        shared.__exit__()
        manager.request("end")
        os.waitpid(child, 0)
        last = manager.last_status()
    one, other = last["functions"]
    assert one["ends"][why] == 2 and one["lost"][why] == one["given"] > 0
    assert other["passed"] == other["given"] and not sum(other["lost"].values())
    assert last["balance"]["unaccounted"] == 0
    assert last["buffers"]["free"] == last["buffers"]["all"]


# --- huge pages ----------------------------------------------------------------------------------

PAGES = Path("/proc/sys/vm/nr_hugepages")


@pytest.fixture(scope="module")
def huge_pages(tmp_path_factory):
    """64 huge pages of 2 MiB more, given back afterwards."""
    before = int(PAGES.read_text())
    folder = tmp_path_factory.mktemp("sfuncs-huge")
    try:
        PAGES.write_text(str(before + 64))
    except OSError as error:
        pytest.skip(f"huge pages need root: {error}")
    try:
        if int(PAGES.read_text()) < before + 64:
            pytest.skip("the machine has no 128 MiB of huge pages")
        words = ["mount", "-t", "hugetlbfs", "none", str(folder)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"hugetlbfs cannot be mounted: {done.stderr}")
        yield folder
        assert [*folder.iterdir()] == []  # nothing of a manager is left
        subprocess.run(["umount", str(folder)], check=True)
    finally:
        PAGES.write_text(str(before))


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["huge-file", "dpdk"])
def test_functions_map_huge_pages(memory, huge_pages):
    """By DPDK's own multi-process support, where memory is DPDK's."""
    with FunctionManager(replace(NULL, memory=memory)) as manager:
        manager.request("receive")
        deaths(manager, 8)
        manager.request("end")
        last = manager.last_status()
    (one,) = last["functions"]
    assert last["memory"] == memory
    assert one["ends"]["died"] == 8 and one["lost"]["died"] == one["given"] >= 8
    assert last["balance"]["unaccounted"] == 0
    assert last["buffers"]["free"] == last["buffers"]["all"]
    assert not manager.path.parent.exists()  # DPDK's runtime files lay there, too


STREAMED = """
import hashlib, os
from n3ic.systems.stream.flows.sources import dpdk

dpdk.MEMORY = "dpdk"
before = os.sched_getaffinity(0), dict(os.environ)
source, found = dpdk.DpdkSource("net_pcap0,rx_pcap=in.pcap"), hashlib.sha256()
assert (os.sched_getaffinity(0), dict(os.environ)) == before
for batch in source.batches({}):
    for frame, _, _ in batch.frames.each() if batch.frames else ():
        found.update(frame)
    batch.counted()
lost = source.lost()
assert source.status["memory"] == "dpdk" and not any(lost.values()), source.status
source.close()
print(found.hexdigest())
"""


@pytest.mark.slow
def test_a_stream_is_a_function_of_dpdks_own_memory(tmp_path, huge_pages):
    """As a NIC needs it: the stream's process joins DPDK, and is left as it was."""
    frames = capture_of(tmp_path / "in.pcap", 3000)
    words = [sys.executable, "-c", STREAMED]
    completed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert completed.stdout.split() == [hashlib.sha256(b"".join(frames)).hexdigest()], (
        completed.stderr
    )
