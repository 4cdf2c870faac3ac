# SPDX-License-Identifier: Apache-2.0
"""n3icd on links of its own: traffic, readers, kills, packs, and what is wrong with them."""

import json
import signal
import socket
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from n3ic.exporters.xdp import libbpf
from n3ic.exporters.xdp.verdict_lists import Limits
from n3ic.model.random_models import random_model
from tests.support.metering import load
from tests.support.n3icd import CLASSES, flows, frame, free_port, repacked, send
from tests.support.wires import ip


@pytest.mark.slow
def test_two_readers_see_every_flow(daemon, veth, daemon_model):
    running = daemon().start()
    readers = [running.reader(), running.reader()]
    assert readers[0].greeting["interface"] == veth[0]
    assert readers[0].greeting["index"] == socket.if_nametoindex(veth[0])
    send(veth[1], flows(range(1000, 1050)))
    one, other = (reader.lines(50) for reader in readers)
    assert one == other
    assert sorted(flow["source_port"] for flow in one) == list(range(1000, 1050))
    for flow in one:
        best = sorted(flow["scores"], reverse=True)
        assert flow["verdict"] == CLASSES[flow["scores"].index(best[0])]
        assert flow["margin"] == best[0] - best[1]
        assert list(flow["features"]) == daemon_model.meter.feature_names
        assert list(flow["registers"]) == [r.name for r in daemon_model.meter.registers]
        assert (flow["packets"], flow["why"], flow["vlan"]) == (4, "packets", None)
        assert (flow["source"], flow["destination"]) == ("192.0.2.1", "192.0.2.2")
        assert flow["interface"] == veth[0]
        assert 0 < flow["first"] <= flow["last"] <= flow["decided"]
        assert flow["registers"]["spkts"] == 4
        assert flow["model"] == daemon_model.digest[:16]
    assert running.end() == 0


@pytest.mark.slow
def test_a_kill_loses_no_flow(daemon, veth):
    port = free_port()
    running = daemon(prometheus=f"127.0.0.1:{port}").start()
    first = running.reader()
    send(veth[1], flows(range(1000, 1010)) + flows(range(2000, 2010), 2))
    assert len(first.lines(10)) == 10
    running.end(signal.SIGKILL)
    send(veth[1], flows(range(2000, 2010), 2) + flows(range(3000, 3010), 2))
    running.start()  # on the socket that the kill left
    assert "took over" in running.log[-1]
    # What was decided meanwhile is read before anybody can connect, but counted.
    figures = running.figures()
    name = f'{{interface="{veth[0]}"}}'
    assert figures[f"n3ic_xdp_packets_total{name}"] >= 100
    assert figures[f"n3ic_xdp_flows_started_total{name}"] == 30
    assert figures[f'n3ic_xdp_decisions_total{{interface="{veth[0]}",reason="packets"}}'] == 20
    assert figures[f"n3ic_xdp_n3icd_events_total{name}"] == 10
    reader = running.reader()
    send(veth[1], flows(range(3000, 3010), 2))
    assert [flow["packets"] for flow in reader.lines(10)] == [4] * 10
    assert running.end() == 0


@pytest.mark.slow
def test_kills_under_traffic_lose_no_flow(daemon, veth, daemon_model, built, tmp_path):
    """What was read when it was killed may come twice, once a kill."""
    pack_path = repacked(built, daemon_model, tmp_path / "p", limits=Limits(new_flows=0))
    path, ports = tmp_path / "flows.json", range(1000, 4000)
    running = daemon(json=path, pack=pack_path).start()

    def ports_of_file():
        lines = path.read_text().split("\n")[:-1]  # behind the last end, one is being written
        return [json.loads(line)["source_port"] for line in lines]

    with ThreadPoolExecutor(1) as pool:
        sender = pool.submit(send, veth[1], flows(ports))
        for _ in range(3):
            seen = len(ports_of_file())
            while len(ports_of_file()) < min(seen + 50, len(ports)):
                assert running.process.poll() is None
            running.end(signal.SIGKILL)
            running.start()
        sender.result()
    while len(flow_ports := ports_of_file()) < len(ports):
        assert running.process.poll() is None
    assert set(flow_ports) == set(ports)
    assert len(flow_ports) <= len(ports) + 3
    assert running.end() == 0


@pytest.mark.slow
def test_an_object_of_something_else_attaches_nothing(daemon, veth, pins, compile_bpf, tmp_path):
    compile_bpf(Path(__file__).with_name("small.c"), tmp_path / "small.o")
    done = daemon(object=tmp_path / "small.o").run()
    assert (done.returncode, "the object's options" in done.stderr) == (1, True), done.stderr
    idle = daemon().settings["idle-object"]
    done = daemon(object=idle).run()
    assert (done.returncode, "the object's options" in done.stderr) == (1, True), done.stderr
    done = daemon(idle_object=tmp_path / "small.o").run()
    assert (done.returncode, "idle flows" in done.stderr or "no map" in done.stderr) == (1, True)
    assert not attached(veth[0])
    assert not (pins / "n3ic" / veth[0]).exists()


@pytest.mark.slow
def test_pins_that_are_not_whole(daemon, veth, pins):
    running = daemon().start()
    assert running.end() == 0
    place = pins / "n3ic" / veth[0]
    (place / "end").unlink()
    done = running.run()
    assert (done.returncode, f"{place}/end: No such file" in done.stderr) == (1, True)
    assert attached(veth[0])
    assert running.run("--remove").returncode == 0
    assert not attached(veth[0])
    # What a kill between pins leaves: a folder of another name, which is no program's.
    begun = place.with_name(f"~n{veth[0]}")
    begun.mkdir()
    with libbpf.create_map(libbpf.ARRAY, "left", 4, 4, 1) as left:
        assert libbpf.libbpf().bpf_obj_pin(left.fd, bytes(begun / "flows")) == 0
    assert running.start().end() == 0
    assert "took over" not in "".join(running.log)
    assert not begun.exists()


@pytest.mark.slow
def test_idle_flows_end(daemon, hasty, veth):
    running = daemon(hasty).start()
    reader = running.reader()
    send(veth[1], flows(range(1000, 1100), 2))
    records = reader.lines(100)
    assert {flow["why"] for flow in records} == {"idle"}
    assert [flow["last"] for flow in records] == sorted(flow["last"] for flow in records)
    assert all(flow["decided"] - flow["last"] > 1 for flow in records)
    assert running.end() == 0


def retrained(model):
    weights = random_model(model.shape, np.random.default_rng(5), extremes=False)
    return replace(model, name="retrained", hidden=weights.hidden, output=weights.output)


@pytest.mark.slow
def test_a_hangup_swaps_the_model(daemon, veth, daemon_model, built, tmp_path):
    path = repacked(built, daemon_model, tmp_path / "n3icd.pack")
    running = daemon(pack=path).start()
    reader = running.reader()
    send(veth[1], flows([1000]))
    assert reader.line()["model"] == daemon_model.digest[:16]
    second = replace(retrained(daemon_model), classes=("x", "y", "z"))
    repacked(built, second, path)
    running.process.send_signal(signal.SIGHUP)
    running.expect("is loaded")
    send(veth[1], flows([1001]))
    flow = reader.line()
    assert (flow["model"], flow["verdict"] in "xyz") == (second.digest[:16], True)
    path.write_bytes(path.read_bytes()[:-30])
    running.process.send_signal(signal.SIGHUP)
    running.expect("the old values stay")
    send(veth[1], flows([1002]))
    assert reader.line()["model"] == second.digest[:16]
    assert running.end() == 0


@pytest.mark.slow
def test_policies_of_a_pack_are_in_force(daemon, veth, daemon_model, built, tmp_path):
    policies = [f"{name}=drop" for name in CLASSES[1:]] + [f"benign=interface:{veth[0]}"]
    path = repacked(
        built, daemon_model, tmp_path / "n3icd.pack", policies=policies,
        rules=[f"interface={veth[0]},udp-port=9=slot:3"],
    )  # fmt: skip
    port = free_port()
    running = daemon(pack=path, prometheus=f"127.0.0.1:{port}").start()
    reader = running.reader()
    send(veth[1], flows([9]))
    flow = reader.line()
    assert (flow["slot"], flow["verdict"]) == (3, "none")
    send(veth[1], flows(range(1000, 1020), 10))
    drops = sum(flow["verdict"] != "benign" for flow in reader.lines(20))
    assert drops
    send(veth[1], [frame(9, source=3)] * 4)  # behind all others
    reader.line()
    figures = running.figures()
    assert figures[f'n3ic_xdp_packets_dropped_total{{interface="{veth[0]}"}}'] == 7 * drops
    assert running.end() == 0


def test_sources_are_blocked_by_policy_and_stay_blocked_over_a_kill(
    daemon, veth, daemon_model, built, tmp_path
):
    policies = [f"{name}=block:host,ttl=600" for name in CLASSES]
    path = repacked(built, daemon_model, tmp_path / "n3icd.pack", policies=policies)
    sink = tmp_path / "figures"
    running = daemon(pack=path, prometheus=sink).start()
    reader = running.reader()
    send(veth[1], flows([1000], 10))
    assert reader.line()["source_port"] == 1000
    running.end(signal.SIGKILL)
    running.start()
    reader = running.reader()
    send(veth[1], flows(range(2000, 2010)) + [frame(9, source=3)] * 4)
    assert reader.line()["source"] == "192.0.2.3"
    name = f'n3ic_xdp_packets_blocked_total{{interface="{veth[0]}"}}'
    assert running.figures()[name] == 6 + 40
    assert running.end() == 0


@pytest.mark.slow
def test_the_room_of_a_running_program_holds(daemon, veth, daemon_model, built, tmp_path):
    path = repacked(built, daemon_model, tmp_path / "n3icd.pack")
    running = daemon(pack=path).start()
    assert oct(running.socket.stat().st_mode)[-3:] == "600"
    room = running.log[-1].partition("room for")[2]
    assert running.end() == 0
    repacked(built, daemon_model, path, flows=100)
    running.start()
    assert "another table size or clock" in running.log[-2]
    assert running.log[-1].partition("room for")[2] == room
    assert running.end() == 0


@pytest.mark.slow
def test_a_program_of_another_build_is_left_alone(daemon, veth, pins):
    running = daemon().start()
    assert running.end() == 0
    fd = libbpf.libbpf().bpf_obj_get(bytes(pins / "n3ic" / veth[0] / "state"))
    with libbpf.BpfMap(fd, owned=True) as state:
        value = state.lookup(0)
        state.update(0, b"0" * 64 + value[64:])
    done = running.run()
    assert (done.returncode, "another program" in done.stderr) == (1, True)
    assert attached(veth[0])


@pytest.mark.slow
def test_damaged_packs_are_refused(daemon, built, tmp_path):
    path = tmp_path / "n3icd.pack"
    data = (built / "daemon" / "n3icd.pack").read_bytes()
    body = data[: data.rindex(b"end ")]

    def check(given, why):
        path.write_bytes(given)
        done = running.run("--check")
        assert (done.returncode, why in done.stderr) == (1, True), (given[-200:], done.stderr)

    def summed(given):
        return given + b"end %08x\n" % zlib.crc32(given)

    running = daemon(pack=path)
    path.write_bytes(data)
    assert running.run("--check").returncode == 0
    assert summed(body) == data
    rng = np.random.default_rng(0)
    for at in [0, 1, 11, 12, *rng.integers(13, len(data) - 1, 8), len(data) - 1]:
        check(data[:at], "cut off" if at != 12 else "")
    for at in rng.integers(0, len(data), 8):
        check(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "n3icd")
    check(data + b"x", "follow the end")
    check(body + b"\0" + data[len(body) :], "zero byte")
    lines = body.splitlines(keepends=True)
    for i in range(1, len(lines)):  # each line is needed
        if i < 12 or i % 40 == 0:
            check(summed(b"".join(lines[:i] + lines[i + 1 :])), "n3icd")
    model = next(line for line in lines if line.startswith(b"inner models"))
    for old, new, why in (
        (model, model[:-3] + b"\n", "another size"),
        (model, model + model, "two values"),
        (model, model.replace(b"models 0", b"models 64"), "no such place"),
        (model, model.replace(b"models 0", b"models -1"), "no such place"),
        (model, model.replace(b"models 0", b"models 99999999999999999999"), "no such place"),
        (model, model[:-2] + b"g\n", "another size"),
        (b"class 0 0 benign", b"class 0 99 benign", "unknown class"),
        (b"class 0 0 benign", b"class 0 0 %00", "name is damaged"),
        (b"class 0 0 benign", b"class 0 0 %", "name is damaged"),
        (b"class 0 0 benign", b"class 0 0 %ff%fe", "name is damaged"),
        (b"class 0 0 benign", b"class 0 0 %ed%a0%80", "name is damaged"),
        (b"class 0 0 benign", b"class 0 0 b e n i g n", "not a line"),
        (b"entries flows ", b"entries flows 9", "n3icd"),
        (b"entries flows ", b"entries flow ", "unknown map"),
        (b"layout ", b"layout 0", "another program"),
        (b"value config 0 ", b"interface config 0 200 lo\nvalue config 0 ", "expected the place"),
        (b"value config 0 ", b"value models 0 ", "unknown map"),
        (b"feature 0 ", b"feature 9999 ", "not a line"),
        (b"options 00", b"options 02", "a live program cannot"),
        (b"model 0 ", b"model 0 a b c d e f g h ", "not a line"),
        (b"n3ic-pack 2", b"n3ic-pack 9", "another version"),
    ):
        assert old in body
        check(summed(body.replace(old, new, 1)), why)


def test_names_with_line_ends_stay_in_their_line(daemon, veth, built, daemon_model, tmp_path):
    """No model has such names, but a pack may."""
    data = (built / "daemon" / "n3icd.pack").read_bytes()
    body = data[: data.rindex(b"end ")]
    for i, name in enumerate(CLASSES):
        old = f"class 0 {i} {quote(name, safe='')}\n".encode()
        assert old in body
        body = body.replace(old, b"class 0 %d %%0a%%22}%%0d%%7f%d\n" % (i, i))
    path = tmp_path / "n3icd.pack"
    path.write_bytes(body + b"end %08x\n" % zlib.crc32(body))
    running = daemon(pack=path).start()
    reader = running.reader()
    send(veth[1], flows([1000]))
    assert reader.line()["verdict"][:-1] == '\n"}\r\x7f'
    assert running.end() == 0


@pytest.mark.slow
def test_a_slow_reader_loses_its_own_flows_and_hears_how_many(daemon, veth):
    port = free_port()
    running = daemon(queue=65536, prometheus=f"127.0.0.1:{port}").start()
    slow, quick = running.reader(), running.reader()
    ports = range(10000, 10600)
    for start in range(0, 600, 100):
        send(veth[1], flows(ports[start : start + 100]))
        quick.lines(100)
    lost = running.figures()[f'n3ic_xdp_n3icd_reader_lost_total{{interface="{veth[0]}"}}']
    assert lost > 0
    flow_count = 0
    for _ in range(600 - int(lost)):
        flow_count += "source" in slow.line()
    send(veth[1], flows([9]))
    assert slow.line() == {"lost": lost}
    assert slow.line()["source_port"] == quick.line()["source_port"] == 9
    assert flow_count == 600 - lost
    assert running.end() == 0


@pytest.mark.slow
def test_a_file_in_the_socket_s_place_is_not_overwritten(daemon, veth, tmp_path):
    running = daemon()
    running.socket.write_text("a file")
    done = running.run()
    assert (done.returncode, "is not a socket" in done.stderr) == (1, True)
    assert running.socket.read_text() == "a file"
    running.socket.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(running.socket))
        other.listen()
        done = running.run()
        assert (done.returncode, "another process listens" in done.stderr) == (1, True)
    running.start()  # a socket that nobody listens on
    again = running.run()
    assert (again.returncode, "another n3icd runs" in again.stderr) == (1, True)
    assert running.reader().greeting["n3icd"] == 1
    assert running.end() == 0
    assert not running.socket.exists()


@pytest.mark.slow
def test_detaching_and_keeping(daemon, veth, pins):
    place = pins / "n3ic" / veth[0]
    running = daemon().start()
    assert running.end() == 0
    assert attached(veth[0])
    assert place.exists()
    running = daemon(on_exit="detach").start()
    assert running.end() == 0
    assert not attached(veth[0])
    assert not place.exists()


def attached(interface):
    attachment = libbpf.query(socket.if_nametoindex(interface))
    return attachment is not None


@pytest.mark.slow
def test_an_interface_that_vanishes_and_comes_back(daemon, veth):
    port = free_port()
    running = daemon(prometheus=f"127.0.0.1:{port}").start()
    reader = running.reader()
    send(veth[1], flows(range(1000, 1005)))
    reader.lines(5)
    ip("del", veth[0])
    assert running.wait() == 1
    assert "the interface is gone" in running.log[-1]
    assert "there is no interface" in running.run().stderr
    ip("add", veth[0], "type", "veth", "peer", "name", veth[1])
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        ip("set", name, "up")
    running.start()
    reader = running.reader()
    send(veth[1], flows(range(2000, 2005)))
    reader.lines(5)
    name = f'n3ic_xdp_flows_started_total{{interface="{veth[0]}"}}'
    assert running.figures()[name] == 10
    assert running.end() == 0


@pytest.mark.slow
def test_another_program_on_the_interface_stays(daemon, veth, daemon_model):
    with load(daemon_model, clock="kernel") as other:
        libbpf.attach(socket.if_nametoindex(veth[0]), other.program, "native")
        done = daemon().run()
        assert (done.returncode, "another XDP program" in done.stderr) == (1, True)
        assert libbpf.query(socket.if_nametoindex(veth[0])).program_id == other.program.id
        libbpf.detach(socket.if_nametoindex(veth[0]), "native", other.program)
    assert daemon().start().end() == 0


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "expected key = value"),
        ("colour = red", "unknown key"),
        ("queue = 1", "expected a number from 65536"),
        ("queue = 99999999999999999999", "expected a number"),
        ("mode = fast", "expected auto, native, generic or tcx"),
        ("json = " + "x" * 300, "the value is too long"),
        ("x" * 2000, "this line: it is too long"),
        ("prometheus = 192.0.2.1:80", "to this machine alone"),
        ("prometheus = 127.0.0.1:0", "expected a path, or"),
        ("ipfix = example.com:1", "expected ADDRESS:PORT"),
        ("ipfix = 127.0.0.1", "expected ADDRESS:PORT"),
        ("sflow = 127.0.0.1:x", "expected ADDRESS:PORT"),
        ("sflow-rate = 0", "expected a number from 1"),
        ("priority = -1", "expected a number from 0"),
        ("mode = tcx\npriority = 5", "tcx runs several programs by itself"),
        ("[eth9]\ncolour = red", "unknown key"),
        ("syslog = /nonexistent/log", "No such file"),
        ("json = /dev/null", "not a regular file"),
        ("socket = relative", "expected an absolute path"),
        ("pack = /nonexistent", "No such file"),
        ("pins = /nonexistent/bpf", "BPF file system"),
        ("object = /dev/null", "cannot read this object"),
    ],
)
def test_wrong_settings_attach_nothing(daemon, veth, line, why):
    running = daemon()
    running.conf.write_text(running.conf.read_text() + line + "\n")
    done = running.run()
    assert (done.returncode, why in done.stderr) == (1, True), done.stderr
    assert not attached(veth[0])


def decisions_of(path):
    """Source ports of the flows in a daemon's file, without a line that is being written."""
    lines = path.read_text().split("\n")[:-1]
    return [json.loads(line)["source_port"] for line in lines]


@pytest.mark.slow
def test_figures_are_answered_before_a_full_ring_is_read(
    daemon, veth, daemon_model, built, tmp_path
):
    unlimited = repacked(built, daemon_model, tmp_path / "p", limits=Limits(new_flows=0))
    port, ports = free_port(), range(1000, 8000)
    running = daemon(pack=unlimited, prometheus=f"127.0.0.1:{port}").start()
    assert running.figures()  # it has read what was decided before its start, and waits
    running.process.send_signal(signal.SIGSTOP)
    send(veth[1], flows(ports))
    request = running.figures_request()
    running.process.send_signal(signal.SIGCONT)
    name = f'{{interface="{veth[0]}"}}'
    figures = running.answered_figures(request)
    assert 0 < figures[f"n3ic_xdp_n3icd_events_total{name}"] < len(ports)
    while running.figures()[f"n3ic_xdp_n3icd_events_total{name}"] < len(ports):
        assert running.process.poll() is None
    assert running.end() == 0


@pytest.mark.slow
def test_a_sweep_over_many_idle_flows_loses_none(daemon, hasty, hasty_model, veth, tmp_path):
    """More of them than the ring has room for."""
    unlimited = repacked(hasty, hasty_model, tmp_path / "p", limits=Limits(new_flows=0))
    path, port, ports = tmp_path / "flows.json", free_port(), range(1000, 41000)
    running = daemon(hasty, json=path, pack=unlimited, prometheus=f"127.0.0.1:{port}").start()
    running.process.send_signal(signal.SIGSTOP)
    send(veth[1], flows(ports, 1))
    time.sleep(1.5)  # so that all are idle at the first sweep
    running.process.send_signal(signal.SIGCONT)
    while len(decisions := decisions_of(path)) < len(ports):
        assert running.process.poll() is None
        figures = running.figures()
        assert figures[f'n3ic_xdp_events_lost_total{{interface="{veth[0]}"}}'] == 0
    assert sorted(decisions) == list(ports)
    assert running.end() == 0
