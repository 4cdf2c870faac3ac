# SPDX-License-Identifier: Apache-2.0
"""n3icd at tcx, where it sees both directions, and on links with large frames."""

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from n3ic.exporters.xdp import libbpf
from tests.support.n3icd import asked, flows, frame, repacked, send
from tests.support.wires import ip


def answer(sent):
    """The frame that goes back."""
    ends = sent[30:34] + sent[26:30] + sent[36:38] + sent[34:36]
    return sent[6:12] + sent[:6] + sent[12:26] + ends + sent[38:]


def exchange(veth, ports):
    for port in ports:
        for _ in range(2):
            send(veth[1], [frame(port)])
            send(veth[0], [answer(frame(port))])


def at_tcx(interface):
    return libbpf.tcx_programs(socket.if_nametoindex(interface))


def check_both(reader, ports):
    for flow in reader.lines(len(ports)):
        assert (flow["registers"]["spkts"], flow["registers"]["dpkts"]) == (2, 2)
        assert (flow["source_port"] in ports, flow["destination_port"]) == (True, 53)


def test_the_daemon_sees_both_directions(daemon, veth):
    running = daemon(mode="tcx").start()
    assert "tcx, both directions" in running.log[-1]
    assert libbpf.query(socket.if_nametoindex(veth[0])) is None
    reader = running.reader()
    exchange(veth, range(1000, 1010))
    check_both(reader, range(1000, 1010))
    running.end(signal.SIGKILL)
    send(veth[1], [frame(2000)] * 2)
    running.start()
    assert "took over" in running.log[-1]
    reader = running.reader()
    for _ in range(2):
        send(veth[0], [answer(frame(2000))])
    check_both(reader, [2000])
    assert len(at_tcx(veth[0])) == 1
    assert running.end() == 0
    assert running.run("--remove").returncode == 0
    assert at_tcx(veth[0]) == []


@pytest.mark.slow
def test_the_daemon_attaches_again_when_its_interface_comes_back(daemon, veth):
    running = daemon(mode="tcx").start()
    ip("del", veth[0])
    assert running.wait() == 1
    ip("add", veth[0], "type", "veth", "peer", "name", veth[1])
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        ip("set", name, "up")
    running.start()
    reader = running.reader()
    exchange(veth, [3000])
    check_both(reader, [3000])
    assert running.end() == 0


@pytest.mark.parametrize(
    ("mode", "policy", "message"),
    [("auto", "benign=mirror:lo", "mode = tcx can"), ("tcx", "benign=cpu:0", "which tcx cannot")],
)
def test_a_pack_that_the_hook_cannot_follow(
    daemon, veth, daemon_model, built, tmp_path, mode, policy, message
):
    path = repacked(built, daemon_model, tmp_path / "n3icd.pack", policies=[policy])
    done = daemon(mode=mode, pack=path).run()
    assert done.returncode == 1
    assert message in done.stderr
    assert at_tcx(veth[0]) == []
    assert libbpf.query(socket.if_nametoindex(veth[0])) is None


@pytest.mark.slow
def test_large_frames_run_in_the_driver(daemon, veth):
    for name in veth:
        ip("set", name, "mtu", "9000")
    running = daemon(mode="native").start()
    reader = running.reader()
    large = frame(1000).ljust(9000, b"x")
    large = large[:16] + (8986).to_bytes(2, "big") + large[18:]
    send(veth[1], [large] * 4 + flows([1001]))
    assert [flow["registers"]["sbytes"] for flow in reader.lines(2)] == [36_000, 4 * 72]
    assert running.end() == 0


@pytest.mark.parametrize("mode", ["auto", "native"])
def test_a_driver_that_takes_no_pieces_runs_the_plain_program(daemon, veth, refuse_frags, mode):
    running = daemon(mode=mode).start()
    assert "takes no frames in several pieces" in running.log[-2]
    place = "native XDP without frames in several pieces"
    assert place in running.log[-1]
    reader = running.reader()
    send(veth[1], flows([1000]) + flows([2000], 2))
    reader.line()
    state = asked(running)
    assert (state["mode"], state["frags"], state["counters"]["packets"]) == ("native", False, 6)
    running.end(signal.SIGKILL)
    refuse_frags()
    running.start()  # takes over what is attached
    assert f"took over the pinned program, {place}" in running.log[-1]
    reader = running.reader()
    send(veth[1], flows([2000], 2))
    assert reader.line()["packets"] == 4
    command = [*running.command()[:1], "status", "-c", running.conf, "-i", veth[0]]
    assert place in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    record = next((running.folder / "xdp").glob("*/*/n3icd.json"))
    assert json.loads(record.read_bytes())["frags"] is False
    # Such a program is refused where frames are large: it is the plain one indeed.
    assert libbpf.query(socket.if_nametoindex(veth[0])).mode == "native"
    assert subprocess.run(["ip", "link", "set", veth[1], "mtu", "9000"], check=False).returncode
    assert running.end() == 0


@pytest.mark.slow
def test_a_program_keeps_its_form_when_its_interface_comes_back(daemon, veth, refuse_frags):
    """It has its flows; where frames are large, the driver takes it in generic mode alone."""
    running = daemon().start()
    assert asked(running)["frags"] is False
    refuse_frags()
    send(veth[1], flows([1000], 2))
    for large in (False, True):
        ip("del", veth[0])
        assert running.wait() == 1
        ip("add", veth[0], "type", "veth", "peer", "name", veth[1])
        for name in veth:
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
            if large:
                ip("set", name, "mtu", "9000")
            ip("set", name, "up")
        running.start()
        place = f"{'generic' if large else 'native'} XDP without frames in several pieces"
        assert f"took over the pinned program, {place}" in running.log[-1]
    reader = running.reader()
    send(veth[1], flows([1001]))
    assert reader.line()["packets"] == 4
    state = asked(running)
    assert (state["mode"], state["frags"], state["counters"]["packets"]) == ("generic", False, 6)
    assert running.end() == 0


@pytest.mark.parametrize("mode", ["auto", "generic", "tcx"])
def test_an_interface_without_ethernet_headers_is_refused(daemon, tun, mode):
    running = daemon(mode=mode)
    running.interface = tun
    done = running.run()
    assert done.returncode == 1
    assert f"{tun}: its packets have no Ethernet header" in done.stderr
    assert at_tcx(tun) == []
    assert libbpf.query(socket.if_nametoindex(tun)) is None


@pytest.mark.slow
def test_xdp_sends_nothing_to_an_interface_without_ethernet_headers(
    daemon, veth, tun, daemon_model, built, tmp_path
):
    policies = [f"benign=interface:{tun}"]
    path = repacked(built, daemon_model, tmp_path / "n3icd.pack", policies=policies)
    done = daemon(pack=path).run()
    assert done.returncode == 1
    assert f"{tun}: its packets have no Ethernet header" in done.stderr
    assert libbpf.query(socket.if_nametoindex(veth[0])) is None
