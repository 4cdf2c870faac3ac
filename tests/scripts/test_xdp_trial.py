# SPDX-License-Identifier: Apache-2.0
"""n3icd under attack, in network namespaces; and what the trial makes of captures."""

import ipaddress
import json
import shutil
import subprocess
import sys

import pytest

from scripts import xdp_trial
from tests.support.traffic import pcap

SCRIPT = xdp_trial.ROOT / "scripts" / "xdp_trial.py"


def tcp(host, port, number, reply=False):
    """A TCP packet of 10.77.HOST to the site, or back."""
    ends = [ipaddress.ip_address(f"10.77.{host}").packed, bytes([10, 77, 0, 1])]
    ports = [port.to_bytes(2, "big"), bytes([0, 80])]
    if reply:
        ends, ports = ends[::-1], ports[::-1]
    ip = bytes([0x45, 0, 0, 40]) + number.to_bytes(2, "big") + bytes([64, 0, 64, 6, 0, 0])
    return bytes(12) + b"\x08\x00" + ip + b"".join(ends) + b"".join(ports) + bytes(16)


def test_where_the_drop_begins_is_told_by_host(tmp_path):
    sent = [
        *(tcp("3.1", 1000, number) for number in range(4)),  # the third does not arrive
        *(tcp("1.1", 2000, number) for number in range(3)),
        tcp("3.1", 1001, 9),
        tcp("3.2", 5, 1),
    ]
    gone = {2, 3, 7, 8}
    (tmp_path / "sent").write_bytes(pcap([(i, one) for i, one in enumerate(sent)]))
    (tmp_path / "arrived").write_bytes(
        pcap([(i, one) for i, one in enumerate(sent) if i not in gone])
    )
    hosts = xdp_trial.reached(tmp_path / "sent", tmp_path / "arrived")
    first = hosts["10.77.3.1"]
    assert (first.sent, first.arrived, first.flows, first.most) == (5, 2, 2, 2)
    assert (first.at_packet, first.at_flow, first.of_host, first.seconds) == (3, 1, 3, 2)
    assert (hosts["10.77.3.2"].at_packet, hosts["10.77.3.2"].arrived) == (1, 0)
    assert (hosts["10.77.1.1"].at_packet, hosts["10.77.1.1"].arrived) == (0, 3)


def test_the_unit_s_command_line_is_what_runs(tmp_path, monkeypatch):
    ran = []

    class Site:
        folder = tmp_path

        def run(self, *words):
            return (xdp_trial.ROOT / "exporters/xdp/daemon/n3icd@.service").read_text()

        def start(self, *words, **options):
            ran.extend(words)
            (tmp_path / "n3icd.log").write_text("n3icd: eth7: native XDP, room for 9 flows\n")

    xdp_trial.Unit(Site(), "eth7").start()
    assert "--bounding-set=-all,+bpf,+net_admin,+perfmon" in ran
    assert ran[-1].endswith("cd /opt/n3icd; exec /opt/n3icd/n3icd n3icd.conf eth7")


@pytest.mark.exhaustive  # what the network learns, and who is lost, differs from run to run
def test_attacks_are_blocked_and_honest_flows_go_on(tmp_path):
    missing = [t for t in xdp_trial.TOOLS if not shutil.which(t, path=xdp_trial.PATH)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    rights = ["unshare", "--net", "--mount", "mount", "-t", "bpf", "bpf", "/sys/fs/bpf"]
    if subprocess.run(rights, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make namespaces and to mount a BPF file system")
    out = tmp_path / "trial.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--folder", tmp_path / "trial", "--json", out],
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    for name, sent in report["dry run"]["packets"].items():
        assert sent["arrived"] > 0.99 * sent["sent"], name
    assert report["dry run"]["figures"]["packets_spared_total"] > 100
    assert report["dry run"]["honest hosts blocked"] == []
    visits = report["dry run"]["visits"].values()
    assert sum(got for got, _ in visits) > 9 * sum(lost for _, lost in visits)
    # What a network learned differs from run to run; what it says must act at once, and last.
    for phase in ("IPv4", "IPv6", "VLAN, IPv4", "kill and update"):
        attackers = report[phase]["attackers"].values()
        assert sum(a["stopped"] for a in attackers if a["attack"] != "") >= 4 * ("IPv" in phase)
        assert report[phase]["honest hosts blocked"] == []
        visits = report[phase]["visits"].values()
        assert sum(got for got, _ in visits) > 9 * sum(lost for _, lost in visits)
    before, after = report["kill and update"]["decisions"]
    assert before <= report["kill and update"]["events in the file"] <= after + 1  # one told twice
    forged = report["forged sources"]
    assert forged["figures"]["blocked_hosts"] <= 1024
    # One forged packet blocks no visitor, allowed or not.
    assert forged["visits"]["10.77.1.16"][1] == forged["visits"]["10.77.1.17"][1] == 0
    assert set(report["collected"]["attackers"]) & {"attack"}
    assert set(report["collected"]["honest"]) & {"honest"}


def test_the_web_server_serves_from_a_folder_that_is_closed_to_others(tmp_path):
    """As those of tests are; a server that answers 403 would make every visit a lost one."""
    needed = [
        t
        for t in ("nginx", "curl", "iperf3", "ethtool", "nsenter")
        if not shutil.which(t, path=xdp_trial.PATH)
    ]
    rights = ["unshare", "--net", "--mount", "true"]
    if needed or subprocess.run(rights, capture_output=True, check=False).returncode:
        pytest.skip("needs nginx, curl, iperf3, ethtool and the right to make namespaces")
    tmp_path.chmod(0o700)
    folder = tmp_path / "trial"
    folder.mkdir()
    with xdp_trial.two_sides(folder) as (site, net), xdp_trial.servers(site):
        body = net.run("curl", "-sS", "--fail", f"{xdp_trial.ROOT_URL}/small")
    assert len(body) == 300
