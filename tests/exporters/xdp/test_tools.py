# SPDX-License-Identifier: Apache-2.0
"""``n3ic xdp`` on links of its own: load, traffic, status, update, watch, unload, nothing left."""

import ctypes
import json
import os
import select
import shutil
import socket
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import ExportError, MissingDependencyError, N3icError, UsageError
from n3ic.exporters.xdp import libbpf, policy_parser
from n3ic.exporters.xdp.plan import Choices
from n3ic.exporters.xdp.resident import NO_VLAN, SlotRule
from n3ic.meter.standard import standard_spec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.systems.xdp import daemon_start, deployment
from n3ic.systems.xdp.flow_reader import FlowReader
from n3ic.systems.xdp.packs import write_pack
from n3ic.systems.xdp.program_record import Interface
from n3ic.systems.xdp.status import ProgramStatus, status
from n3ic.systems.xdp.terminal import lines
from n3ic.targets.directory import export
from tests.support.metering import network, with_needless_parts
from tests.support.n3icd import N3IC, build, decided, free_port, n3ic

CLASSES = ("benign", "attack=very", "shunted")


def frame(port, protocol=17):
    """A UDP packet between two documentation addresses."""
    payload = b"x" * 30
    ip = bytes.fromhex(f"4500003a00000000 40 {protocol:02x} 0000 c0000201 c0000202")
    udp = port.to_bytes(2, "big") + bytes.fromhex("0035 0026 0000")
    return bytes.fromhex("020000000001 020000000002 0800") + ip + udp + payload


def send(link, frames):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((link, 0))
        for data in frames:
            out.send(data)


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    first = network(standard_spec(packets=4), 0)
    bits = rng.integers(0, 2, (9, first.input.n_bits)).astype(bool)
    first = replace(first, name="net0", input=first.input.with_rates(bits))
    weights = random_model(first.shape, rng, extremes=False)
    retrained = replace(first, name="net1", hidden=weights.hidden, output=weights.output)
    return [first, retrained]


@pytest.fixture(scope="module")
def exported(models, tmp_path_factory, clang):
    return build(tmp_path_factory.mktemp("xdp"), models[0])


@pytest.fixture(scope="module", params=[pytest.param("lru", marks=pytest.mark.slow), "buckets"])
def with_table(request, models, exported, tmp_path_factory):
    """Exports with either flow table."""
    if request.param == "buckets":
        return exported
    return build(tmp_path_factory.mktemp("xdp"), models[0], table=request.param)


@pytest.fixture
def link(veth, run_folder):
    """A link's two ends that say nothing by themselves."""
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    yield veth
    deployment.unload(Interface.named(veth[0]))


def watched(one):
    """A reader of the flows of an interface, which it gives until they are as many as asked."""
    return FlowReader(Interface.named(one))


def next_flows(reader, count):
    """The next flows that a reader gets."""
    flows = []
    while len(flows) < count:
        flows += reader.read(60)
    assert len(flows) == count
    return flows


def ours():
    """Programs of n3ic in the kernel, whose numbers only grow."""
    numbers, number = set(), ctypes.c_uint32()
    while not libbpf.libbpf().bpf_prog_get_next_id(number.value, ctypes.byref(number)):
        try:
            with libbpf.program_by_id(number.value) as program:
                if program.name.startswith("n3ic"):
                    numbers.add(number.value)
        except libbpf.BpfError:
            continue
    return numbers


# --- on an interface -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_whole_way(link, with_table, models, tmp_path, run_folder):
    one, other = link
    exported = with_table
    loaded = json.loads(n3ic("load", one, exported, "--json"))
    assert loaded["mode"] == "native"
    reader = watched(one)
    send(other, [frame(port) for port in range(1000, 1010) for _ in range(4)])
    send(other, [b"\xff" * 14 + b"no IP"])
    flows = next_flows(reader, 10)
    assert {f["source_port"] for f in flows} == set(range(1000, 1010))
    assert {f["model"] for f in flows} == {models[0].digest[:16]}
    state = status(Interface.named(one))
    assert (state.started, state.flows, state.evicted) == (10, 10, 0)
    assert state.ends == {"packets": 10}
    assert state.aside["not IP"] >= 1
    slot = state.slots[0]
    assert (decided(slot), slot.digest) == (10, models[0].digest)
    assert sum(slot.margins) == 10
    assert slot.drift
    shown = n3ic("status", one)
    assert "flows 10 of" in shown
    assert "net0" in shown

    models[1].save(tmp_path / "next.n3ic")
    assert "net1" in n3ic("update", one, tmp_path / "next.n3ic")
    send(other, [frame(2000)] * 4)
    (flow,) = next_flows(reader, 1)
    assert flow["model"] == models[1].digest[:16]
    assert flow["packets"] == 4
    state = status(Interface.named(one))
    assert decided(state.slots[0]) == 1  # counters begin anew with a model

    number = state.program_id
    assert number in ours()
    assert "unloaded" in n3ic("unload", one)
    assert number not in ours()
    assert not list((run_folder / "xdp").iterdir())
    assert "nothing of n3ic" in n3ic("unload", one)


def test_scores_that_are_watched_are_the_models(link, exported, models):
    one, other = link
    n3ic("load", one, exported)
    with closing(watched(one)) as reader:
        send(other, [frame(port) for port in range(50) for _ in range(4)])
        flows = next_flows(reader, 50)
    for flow in flows:
        best = int(np.argmax(flow["scores"]))
        assert flow["verdict"] == models[0].classes[best]
        top = sorted(flow["scores"])
        assert flow["margin"] == top[-1] - top[-2]


def test_a_policy_drops_and_what_is_undecided_passes(link, exported):
    one, other = link
    policies = [f"--policy={verdict}=drop" for verdict in "abc"]
    n3ic("load", one, exported, *policies)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as sniffer:
        sniffer.bind((one, 0x0800))
        sniffer.settimeout(60)
        send(other, [frame(7)] * 9)
        send(other, [frame(8)])
        ports = [int.from_bytes(sniffer.recv(200)[34:36], "big") for _ in range(4)]
    assert ports == [7, 7, 7, 8]  # the fourth packet decides, and is dropped itself


@pytest.mark.slow
def test_a_host_that_a_decision_blocks_is_dropped_before_the_meter(
    link, exported, models, tmp_path
):
    one, other = link
    policies = [f"--policy={verdict}=block:host,ttl=600" for verdict in "abc"]
    n3ic("load", one, exported, *policies)
    send(other, [frame(7)] * 4 + [frame(8)] * 5)
    state = status(Interface.named(one))
    assert (state.blocked, state.started, state.verdicts, state.blocked_hosts) == (5, 1, 1, 1)
    assert "hosts blocked 1 of 1,024" in n3ic("status", one)
    (entry,) = json.loads(n3ic("list", one, "--json"))["decided"]
    assert (entry["target"], entry["action"], entry["packets"]) == ("192.0.2.1", "drop", 5)
    assert entry["by"] in "abc" and 500 < entry["left_s"] <= 600
    assert (entry["flow_packets"], entry["repeats"]) == (4, 0) and entry["margin"] >= 0
    assert abs(entry["since"] - time.time()) < 60
    assert f"margin {entry['margin']} at packet 4" in n3ic("list", one)
    wide = network(standard_spec(packets=4), 7)
    n3ic("update", one, _saved(wide, tmp_path))  # a program of another structure takes them over
    send(other, [frame(9)])
    assert status(Interface.named(one)).blocked == 6
    assert "unblocked" in n3ic("unblock", one, "192.0.2.1")
    send(other, [frame(9)])
    assert status(Interface.named(one)).blocked == 6
    with pytest.raises(UsageError, match="no verdict on 192"):
        n3ic("unblock", one, "192.0.2.1")


@pytest.mark.slow
def test_the_operator_blocks_and_allows(link, exported):
    one, other = link
    n3ic("load", one, exported, *(f"--policy={verdict}=block:host" for verdict in "abc"))
    n3ic("block", one, "192.0.2.0/24", "--ttl", 600)
    flow = "192.0.2.1:7-192.0.2.2:53/udp"
    assert "192.0.2.2:53" in n3ic("allow", one, flow)
    send(other, [frame(7)] * 5 + [frame(8)] * 3)
    state = status(Interface.named(one))
    assert (state.allowed, state.blocked) == (5, 3)
    n3ic("allow", one, "192.0.2.1")  # the address goes before what is blocked
    send(other, [frame(8)] * 5)
    state = status(Interface.named(one))
    assert (state.allowed, state.blocked, state.verdicts) == (10, 3, 0 + state.verdicts)
    shown = n3ic("list", one)
    assert "192.0.2.0/24" in shown and "operator" in shown and "ever" in shown
    n3ic("allow", one, "192.0.2.1", "--remove")
    n3ic("allow", one, flow, "--remove")
    send(other, [frame(7)])
    assert status(Interface.named(one)).blocked == 4
    n3ic("unblock", one, "192.0.2.0/24")
    began = time.monotonic()
    n3ic("block", one, flow, "--action", "rate-limit:2")
    send(other, [frame(7)] * 9)
    limited = status(Interface.named(one)).limited
    assert 7 - 2 * (time.monotonic() - began) < limited <= 7
    for wrong, message in (
        ("0.0.0.0/0", "every address"),
        ("192.0.2.1/24", "host bits set"),
        ("nobody", "expected an address"),
        ("192.0.2.1:1-[::1]:2/tcp", "expected an address"),
        ("192.0.2.1:1-192.0.2.2:70000/tcp", "expected an address"),
    ):
        with pytest.raises(UsageError, match=message):
            n3ic("block", one, wrong)
    with pytest.raises(UsageError, match="not on the list"):
        n3ic("allow", one, "192.0.2.9", "--remove")


def test_a_dry_run_drops_nothing_and_is_told(link, exported):
    one, other = link
    n3ic("load", one, exported, "--dry-run", *(f"--policy={v}=block:host" for v in "abc"))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as sniffer:
        sniffer.bind((one, 0x0800))
        sniffer.settimeout(60)
        send(other, [frame(7)] * 9)
        assert len([sniffer.recv(200) for _ in range(9)]) == 9
    state = status(Interface.named(one))
    assert (state.dry_run, state.blocked, state.spared) == (True, 0, 11)  # each time it would not
    assert "dry run: every packet passes" in n3ic("status", one)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["lru", "buckets"])
def test_flows_that_are_forgotten_undecided_are_an_alarm(link, models, tmp_path, table):
    """The kernel's map forgets them; a bucket decides what makes room."""
    one, other = link
    n3ic("load", one, build(tmp_path, models[0], table=table), "--flows", 64, "--new-flows", 0)
    send(other, [frame(port) for port in range(1, 1001)])
    state = status(Interface.named(one))
    assert state.started == 1000
    if table == "buckets":
        assert state.room == 128
        assert (state.undecided, dict(state.alarms)) == (0, {})
        assert state.ends["evicted"] == 1000 - state.flows > 800
        return
    assert state.undecided >= 1000 - 64
    assert "ALARM" in n3ic("status", one) and "--table buckets" in state.alarms["undecided"]
    command = [*N3IC, "xdp", "watch", one, "--json", "--seconds", "1"]
    completed = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert "ALARM" in completed.stderr and "undecided" in completed.stderr


@pytest.mark.slow
def test_the_table_is_as_large_as_asked(link, exported):
    one, other = link
    began = time.monotonic()
    n3ic("load", one, exported, "--memory", "2M", "--new-flows", 20)
    with libbpf.program_by_id(status(Interface.named(one)).program_id) as program:
        maps = {bpf_map.name: bpf_map for bpf_map in program.maps()}
        item = maps["flows"].value_bytes + maps["tags"].value_bytes
        assert 0 <= (2 << 20) - maps["flows"].entries * item < item
    send(other, [frame(port) for port in range(1, 101)])
    state = status(Interface.named(one))
    assert 20 <= state.started <= 20 + 20 * (time.monotonic() - began)
    assert state.excess == 100 - state.started
    assert not state.excess or "began too fast" in state.alarms["excess"]
    n3ic("unload", one)
    for wrong, message in (
        (("--memory", "2X"), "a number of bytes such as 64M"),
        (("--memory", "1K"), "the smallest table"),
        (("--memory", "2M", "--flows", 9), "expected one of them"),
        (("--max-blocked", 20_000), "more --verdicts"),
    ):
        with pytest.raises(UsageError, match=message):
            n3ic("load", one, exported, *wrong)


def test_events_tell_when_and_where(link, exported, models):
    one, other = link
    n3ic("load", one, exported)
    before = time.time()
    tagged = bytearray(frame(8))
    tagged[12:12] = b"\x81\x00\x00\x05"
    with closing(watched(one)) as reader:
        send(other, [frame(7)] * 4 + [bytes(tagged)] * 4)
        flows = {flow["source_port"]: flow for flow in next_flows(reader, 2)}
    assert [flows[port]["vlan"] for port in (7, 8)] == [None, 5]
    for flow in flows.values():
        assert flow["interface"] == one
        assert before - 1 < flow["first"] <= flow["last"] <= flow["decided"] < time.time() + 1
        assert {*flow["features"]} == {*models[0].meter.feature_names}
        columns = {name: [value] for name, value in flow["features"].items()}
        scores = models[0].infer(models[0].encode(columns)).scores
        assert scores[0].tolist() == flow["scores"]


@pytest.mark.slow
def test_who_watches_an_interface_that_goes_is_told_in_a_line(link, exported):
    one, _ = link
    extra = f"{one}x"
    pair = ["ip", "link", "add", extra, "type", "veth", "peer", "name", f"{one}y"]
    subprocess.run(pair, check=True)
    try:
        n3ic("load", extra, exported)
        for name in (extra, f"{one}y"):
            subprocess.run(["ip", "link", "set", name, "up"], check=True)
        command = [*N3IC, "xdp", "watch", extra, "--json", "--seconds", "600"]
        pipe = subprocess.PIPE
        watch = subprocess.Popen(command, env=os.environ, stdout=pipe, stderr=pipe, text=True)
        assert watch.stdout is not None
        while not select.select([watch.stdout], [], [], 0.2)[0]:
            send(f"{one}y", [frame(2)] * 4)
    finally:
        subprocess.run(["ip", "link", "del", extra], check=True)
    _, error = watch.communicate(timeout=600)
    assert error.strip().splitlines()[-1] == (
        f"n3ic: error: {extra}: the interface was removed, and its program with it"
    )
    assert "Traceback" not in error
    assert watch.returncode == 2


@pytest.mark.slow
def test_another_cpu_takes_the_packets_of_a_verdict(link, exported):
    one, other = link
    n3ic("load", one, exported, "--policy", "undecided=cpu:0")
    with libbpf.program_by_id(status(Interface.named(one)).program_id) as program:
        (cpus,) = [m for m in program.maps() if m.name == "cpus"]
    assert cpus.lookup(0)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as sniffer:
        sniffer.bind((one, 0x0800))
        sniffer.settimeout(60)
        send(other, [frame(7)])
        assert int.from_bytes(sniffer.recv(200)[34:36], "big") == 7


def test_a_rule_chooses_the_slot(link, exported, models, tmp_path):
    one, other = link
    n3ic("load", one, exported, "--rule", "udp-port=9=slot:5")
    models[1].save(tmp_path / "next.n3ic")
    n3ic("update", one, tmp_path / "next.n3ic", "--slot", 5)
    send(other, [frame(9)] * 4 + [frame(10)] * 4)
    state = status(Interface.named(one))
    assert {n: decided(slot) for n, slot in state.slots.items()} == {0: 1, 5: 1}


@pytest.mark.slow
def test_a_network_of_another_structure_brings_a_program_that_keeps_the_flows(
    link, with_table, models, tmp_path
):
    one, other = link
    n3ic("load", one, with_table, "--policy", "a=drop")
    send(other, [frame(1)] * 2 + [frame(2)] * 4)
    before = status(Interface.named(one))
    wide = network(standard_spec(packets=4), 7)
    assert "slot 0" in n3ic("update", one, _saved(wide, tmp_path))
    after = status(Interface.named(one))
    assert after.program_id != before.program_id
    assert (after.flows, after.started, after.packets) == (2, 2, before.packets)
    send(other, [frame(1)] * 2)  # the fourth packet of a flow that the first program saw begin
    state = status(Interface.named(one))
    assert decided(state.slots[0]) == 1
    assert state.slots[0].digest == wide.digest
    with pytest.raises(ExportError, match="what other slots hold does not fit"):
        n3ic("update", one, _saved(models[1], tmp_path), "--slot", 3)
    assert status(Interface.named(one)).program_id == state.program_id
    assert before.program_id not in ours()
    with pytest.raises(N3icError, match=r"policies of .* are for the classes a, b, c"):
        n3ic("update", one, _saved(replace(wide, classes=("b", "a", "c")), tmp_path))


@pytest.mark.slow
def test_a_retrained_network_needs_no_new_program(link, models, tmp_path, clang):
    """Though the first one had neurons and a feature that it did not need."""
    one, _ = link
    n3ic("load", one, build(tmp_path, with_needless_parts(models[0])))
    before = status(Interface.named(one))
    assert "new program" not in n3ic("update", one, _saved(models[1], tmp_path))
    after = status(Interface.named(one))
    assert after.program_id == before.program_id
    assert after.slots[0].digest == models[1].digest


@pytest.mark.exhaustive
def test_without_a_compiler_a_built_export_is_the_new_program(
    link, exported, models, tmp_path, monkeypatch
):
    one, other = link
    wide = network(standard_spec(packets=4), 7)
    bare, card, per_cpu = (tmp_path / name for name in ("bare", "card", "per-cpu"))
    export(wide, "xdp", bare, verify=False)
    built = build(card, wide)
    other_windows = build(per_cpu, wide, windows="per-cpu")
    n3ic("load", one, exported, "--policy", "a=drop")
    send(other, [frame(1)] * 2)
    before = status(Interface.named(one))
    monkeypatch.setenv("N3IC_CLANG", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for given in (bare, _saved(wide, tmp_path)):
        with pytest.raises(MissingDependencyError, match="apt-get install clang"):
            n3ic("update", one, given)
    with pytest.raises(UsageError, match="another meter, flow table or number of classes"):
        n3ic("update", one, other_windows)
    n3ic("update", one, _saved(models[1], tmp_path))
    assert status(Interface.named(one)).program_id == before.program_id
    assert "slot 0" in n3ic("update", one, built)
    send(other, [frame(1)] * 2)
    after = status(Interface.named(one))
    assert after.program_id != before.program_id
    assert (after.flows, decided(after.slots[0])) == (1, 1)
    assert after.slots[0].digest == BinaryModel.load(built / "model.n3ic").digest
    assert before.program_id not in ours()


def test_a_load_that_is_interrupted_leaves_nothing(link, exported, run_folder, monkeypatch):
    one, _ = link

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(daemon_start, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deployment.load(Interface.named(one), exported)
    assert libbpf.query(socket.if_nametoindex(one)) is None
    assert not list((run_folder / "xdp").glob("*/*"))


@pytest.mark.slow
def test_two_loads_at_once_leave_one_program_with_its_record(link, exported):
    one, _ = link

    def load(_):
        try:
            return deployment.load(Interface.named(one), exported).record.program_id
        except UsageError:
            return None

    with ThreadPoolExecutor(3) as pool:
        done = [number for number in pool.map(load, range(3)) if number]
    assert done == [status(Interface.named(one)).program_id]


@pytest.mark.slow
def test_who_watches_sees_the_models_of_updates_and_the_end(link, exported, models, tmp_path):
    one, other = link
    n3ic("load", one, exported)
    wide = network(standard_spec(packets=4), 7)
    with closing(watched(one)) as reader:
        for port, model in enumerate((models[1], wide), 1):
            n3ic("update", one, _saved(model, tmp_path))
            reader.read(0.1)  # it goes on with the n3icd that the update brings
            send(other, [frame(port)] * 4)
            assert next_flows(reader, 1)[0]["model"] == model.digest[:16]
        assert decided(status(Interface.named(one)).slots[0]) == 1
        n3ic("unload", one)
        with pytest.raises(UsageError, match="has loaded nothing there"):
            reader.read(60)


def _saved(model, folder):
    path = folder / "given.n3ic"
    model.save(path)
    return path


def test_a_model_of_another_meter_is_refused(link, exported, models, tmp_path):
    one, _ = link
    n3ic("load", one, exported)
    other = network(standard_spec(packets=5), 1)
    other.save(tmp_path / "other.n3ic")
    with pytest.raises(N3icError, match="its meter is not the program's"):
        n3ic("update", one, tmp_path / "other.n3ic")
    assert status(Interface.named(one)).slots[0].digest == models[0].digest


def test_a_second_load_and_somebody_elses_program_are_refused(
    link, exported, compile_bpf, tmp_path
):
    one, _ = link
    n3ic("load", one, exported)
    with pytest.raises(UsageError, match=f"xdp update {one} MODEL .* xdp unload {one} and load"):
        n3ic("load", one, exported)
    n3ic("unload", one)
    source = tmp_path / "foreign.c"
    source.write_text(
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n"
        'SEC("xdp") int foreign(void *ctx) { return 2; }\n'
        'char l[] SEC("license") = "GPL";\n'
    )
    image = compile_bpf(source, tmp_path / "foreign.o")
    index = socket.if_nametoindex(one)
    with libbpf.BpfObject(image, "foreign.o") as foreign:
        program = foreign.programs["foreign"]
        libbpf.attach(index, program, "native")
        try:
            with pytest.raises(UsageError, match="another XDP program is attached"):
                n3ic("load", one, exported)
            assert "nothing of n3ic" in n3ic("unload", one)
            assert libbpf.query(index) is not None
        finally:
            libbpf.detach(index, "native")


def test_without_native_xdp_it_is_generic_and_said(exported, in_namespace, run_folder):
    def check():
        interface = Interface.named("lo")
        loaded = deployment.load(interface, exported)
        assert loaded.record.mode == "generic"
        assert "generic" in loaded.note
        assert libbpf.query(interface.index).mode == "generic"
        assert deployment.unload(interface)

    in_namespace(check)


@pytest.mark.slow
def test_at_a_large_mtu_it_runs_in_the_driver(link, exported):
    one, other = link
    for name in link:
        subprocess.run(["ip", "link", "set", name, "mtu", "9000"], check=True)
    loaded = json.loads(n3ic("load", one, exported, "--mode", "native", "--json"))
    assert (loaded["mode"], loaded["frags"]) == ("native", True)
    send(other, [frame(1) + bytes(8000)] * 4)
    assert decided(status(Interface.named(one)).slots[0]) == 1


@pytest.mark.parametrize(
    ("spec", "shunt", "policies", "refused"),
    [
        (standard_spec(packets=4), 0, ["a=drop", "undecided=mark:1", "aside=drop"], ""),
        (standard_spec(after_us=9), 3, ["a=drop", "shunt=cpu:0"], ""),
        (standard_spec(), 0, ["a=pass", "b=block:host", "excess=drop", "c=mark:1,for=flow"], ""),
        (standard_spec(packets=4), 0, ["a=drop", "shunt=drop"], "'shunt=drop' can never act"),
        (standard_spec(packets=4), 0, ["shunt=block:host"], "'shunt=block:host' can never act"),
        (standard_spec(), 0, ["a=pass", "b=drop"], r"'b=drop' acts on no flow.*b=block:host,ttl"),
        (replace(standard_spec(), ends=()), 3, ["shunt=drop"], r"acts on no .*shunt=block:host"),
        (standard_spec(packets=4), 0, ["a=block:host,from=4"], ""),
        (standard_spec(schedule=(1, 3)), 0, ["a=block:host,from=8"], ""),  # at the end, maybe
        (standard_spec(packets=4), 0, ["a=block:host,from=5"], "at packet 4 at the latest"),
    ],
)
def test_a_policy_that_cannot_act_is_refused(spec, shunt, policies, refused):
    model = network(spec, shunt=shunt)
    if not refused:
        policy_parser.check_policies(policies, model)
        return
    with pytest.raises(UsageError, match=refused):
        policy_parser.check_policies(policies, model)


def test_load_refuses_a_policy_that_cannot_act_and_leaves_nothing(link, tmp_path, clang):
    one, _ = link
    export(network(standard_spec()), "xdp", tmp_path / "export", verify=False)
    with pytest.raises(UsageError, match=r"decides flows at their end.*--packets N"):
        n3ic("load", one, tmp_path / "export", "--policy", "b=drop")
    assert libbpf.query(socket.if_nametoindex(one)) is None


def test_load_and_pack_refuse_a_time_that_decides_nothing(exported_late, tmp_path):
    message = "decides each flow at packet 1, so --after never decides one"
    with pytest.raises(UsageError, match=message):
        deployment.load(Interface("lo", 1), exported_late)
    with pytest.raises(UsageError, match=message):
        write_pack(exported_late, tmp_path / "pack", Choices())
    for packets, schedule in ((2, ()), (0, (2, 3)), (0, ())):
        spec = standard_spec(packets=packets, after_us=9, schedule=schedule)
        policy_parser.check_times(network(spec))


@pytest.fixture
def exported_late(tmp_path):
    """An export whose meter decides at packet 1, and after a time for which nothing is left."""
    model = network(standard_spec(after_us=9, schedule=(1, 3)))
    return export(model, "xdp", tmp_path / "late", verify=False).path


@pytest.mark.slow
def test_a_policy_acts_from_the_first_point_of_a_schedule(link, tmp_path, clang):
    one, other = link
    model = network(standard_spec(schedule=(3, 5)))
    output = n3ic("load", one, build(tmp_path, model), *(f"--policy={v}=drop" for v in "abc"))
    assert "policy" not in output
    reader = watched(one)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as sniffer:
        sniffer.bind((one, 0x0800))
        sniffer.settimeout(60)
        send(other, [frame(7)] * 6 + [frame(8)])
        ports = [int.from_bytes(sniffer.recv(200)[34:36], "big") for _ in range(3)]
    assert ports == [7, 7, 8]
    assert status(Interface.named(one)).ends == {"packets": 2}  # at packets 3 and 5
    assert [flow["packets"] for flow in next_flows(reader, 2)] == [3, 5]


def test_a_damaged_record_is_a_line(link, exported):
    one, _ = link
    n3ic("load", one, exported)
    (record,) = Interface.named(one).folder.glob("*/n3icd.json")
    for text in ("{", "[]", '{"version": 1}', '{"version": 9, "mode": "native"}'):
        record.write_text(text)
        with pytest.raises(UsageError, match="damaged"):
            n3ic("status", one)
    assert "unloaded" in n3ic("unload", one)
    assert libbpf.query(socket.if_nametoindex(one)) is None


@pytest.mark.slow
def test_a_scrape_gives_the_figures(link, exported, models, tmp_path):
    one, other = link
    where = f"127.0.0.1:{free_port()}"
    n3ic("load", one, exported, "--setting", f"prometheus={where}")
    send(other, [frame(1)] * 4)
    with urllib.request.urlopen(f"http://{where}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    n3ic("update", one, _saved(network(standard_spec(packets=4), 7), tmp_path))  # a new n3icd
    with urllib.request.urlopen(f"http://{where}/metrics", timeout=60) as answer:
        assert 'slot="0"' in answer.read().decode()
    assert f'n3ic_xdp_flows{{interface="{one}"}} 1' in text
    assert "n3ic_xdp_margin_count{interface=" in text


def test_settings_are_those_of_n3icd(link, exported):
    one, _ = link
    for wrong, message in (
        ("ipfix", "expected KEY=VALUE"),
        ("=9", "expected KEY=VALUE"),
        ("a=1\nb=2", "expected KEY=VALUE"),
        ("colour=red", "colour: unknown key"),
        ("queue=many", "expected a number"),
    ):
        with pytest.raises(UsageError, match=message):
            n3ic("load", one, exported, "--setting", wrong)
    assert libbpf.query(socket.if_nametoindex(one)) is None


# --- without one ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("benign=pass", (0, "pass", 0)),
        ("attack=very=drop", (1, "drop", 0)),
        ("shunt=cpu:3", ("shunted", "cpu", 3)),
        ("aside=interface:eth7", ("aside", "interface", "eth7")),
        ("undecided=mark:0x10", ("undecided", "mark", 16)),
    ],
)
def test_policies_as_they_are_typed(text, expected):
    policy = policy_parser.policy(text, CLASSES)
    assert (policy.verdict, policy.action, policy.argument) == expected
    assert (policy.scope, policy.ttl_s) == ("none", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("benign=block:host,ttl=60", (0, "drop", 0, "host", 60, (24, 64))),
        ("attack=very=drop,for=flow", (1, "drop", 0, "flow", 60, (24, 64))),
        ("shunt=block:prefix:16", ("shunted", "drop", 0, "prefix", 60, (16, 64))),
        ("benign=mark:7,for=prefix:20:48,ttl=.5", (0, "mark", 7, "prefix", 0.5, (20, 48))),
        ("benign=rate-limit:100,for=host", (0, "rate-limit", 10**7, "host", 60, (24, 64))),
        ("benign=block:host,from=8", (0, "drop", 0, "host", 60, (24, 64), 8)),
        ("shunt=block:prefix,times=3,ttl=5", ("shunted", "drop", 0, "prefix", 5, (24, 64), 0, 3)),
    ],
)
def test_policies_that_hold_for_later_packets(text, expected):
    assert policy_parser.policy(text, CLASSES) == policy_parser.VerdictPolicy(*expected)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("drop", "VERDICT=ACTION"),
        ("nobody=drop", "no verdict 'nobody'"),
        ("benign=burn", "no action 'burn'"),
        ("benign=cpu", "needs an argument"),
        ("benign=drop:1", "takes no argument"),
        ("benign=cpu:x", "not a number"),
        ("benign=cpu:64", "not a number below 64"),
        ("benign=socket:64", "not a number below 64"),
        ("benign=mark:4294967296", "not a number"),
        ("benign=mirror", "needs an argument"),
        ("benign=redirect:eth1", "interface:NAME"),
        ("benign=allow", "no action 'allow'"),
        ("benign=block", "block needs"),
        ("benign=block:net", "'net' is not flow, host or prefix"),
        ("benign=block:host:8", "'host:8' is not"),
        ("benign=block:prefix:0", "0 bits"),
        ("benign=block:prefix:33", "not a number below 33"),
        ("benign=block:host,ttl=x", "expected seconds"),
        ("benign=drop,ttl=5", "expected ,for=flow"),
        ("benign=rate-limit:5", "expected ,for=flow"),
        ("benign=rate-limit:0,for=host", "a rate is 1 to"),
        ("benign=drop,near=5", "no option 'near=5'"),
        ("undecided=block:host", "only decisions"),
        ("benign=block:flow,from=8", "are for hosts and prefixes"),
        ("benign=drop,times=2", "are for hosts and prefixes"),
        ("benign=block:host,times=x", "not a number"),
        ("benign=block:flow,max-ttl=90", "are for hosts and prefixes"),
        ("benign=block:host,ttl=60,max-ttl=30", "max-ttl=30: expected 60 or more"),
        ("benign=block:host,max-ttl=long", "max-ttl=long: expected seconds"),
    ],
)
def test_policies_that_mean_nothing(text, match):
    with pytest.raises(UsageError, match=match):
        policy_parser.policy(text, CLASSES)


@pytest.mark.parametrize(
    "texts", [("a=drop", "b=pass", "a=pass"), ("a=drop",) * 2, ("shunt=cpu:1", "shunt=drop")]
)
def test_two_policies_of_one_verdict_are_refused(texts):
    with pytest.raises(UsageError, match=f"'{texts[0]}' and '{texts[-1]}': expected one per"):
        policy_parser.policies(texts, ("a", "b"))
    assert len(policy_parser.policies(("a=drop", "b=drop", "shunt=drop"), ("a", "b"))) == 3


def test_policies_have_prefixes_of_one_size():
    with pytest.raises(UsageError, match="several sizes"):
        policy_parser.policies(("a=block:prefix:16", "b=block:prefix"), ("a", "b"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vlan=10=slot:3", SlotRule(3, vlan=10)),
        ("vlan=none,udp-port=53=slot:1", SlotRule(1, vlan=NO_VLAN, udp_port=53)),
        ("prefix=10.0.0.0/8=slot:2", SlotRule(2, address=bytes([10, 0, 0, 0]), prefix=8)),
        ("interface=lo=slot:4", SlotRule(4, interface=socket.if_nametoindex("lo"))),
    ],
)
def test_rules_as_they_are_typed(text, expected):
    assert policy_parser.rule(text) == expected


@pytest.mark.parametrize(
    "text",
    ["slot:1", "vlan=4096=slot:1", "prefix=10.0.0.1/8=slot:1", "vlan=1=slot:64", "port=1=slot:1",
     "udp-port=65536=slot:0", "interface=n3ic-none=slot:1", "vlan=1=1"],
)  # fmt: skip
def test_rules_that_mean_nothing(text):
    with pytest.raises(UsageError):
        policy_parser.rule(text)


def test_packets_that_were_not_counted_or_marked_are_shown():
    given = ("eth0", "native", 1, "x", 9, 90, 2, 8, 3, {}, {}, 0, 0, 0, 0, {})
    made = ProgramStatus(*given, contended=1234, not_marked=5678)
    shown = "\n".join(lines(made))
    assert "1,234" in shown and "5,678" in shown
    assert "contended" not in "\n".join(lines(ProgramStatus(*given)))
    document = json.loads(json.dumps(asdict(made)))
    assert (document["contended"], document["not_marked"]) == (1234, 5678)


def test_an_export_of_an_older_n3ic_is_refused(exported, tmp_path):
    path = shutil.copytree(exported, tmp_path / "older") / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["options"]["table"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ExportError, match=r"older n3ic.*export it again"):
        deployment.exported(path.parent)


def test_an_interface_that_is_not_there_is_a_line():
    with pytest.raises(UsageError, match=r"no interface 'nowhere'.*lo"):
        Interface.named("nowhere")
