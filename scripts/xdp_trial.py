#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attack a web server that n3icd guards, with real tools, in two network namespaces.

The site has nginx, iperf3, an IPFIX collector and n3icd, which runs with the command line and the
capabilities of its unit. The net has hosts that load pages and hosts that attack. The traffic of
both is recorded and labelled by capture, a network is trained on it, and n3icd is started with its
policy, first as a dry run, then for real. Then other hosts attack with other parameters. Meanwhile,
n3icd is killed, started again, and given another model. Both namespaces end with this script.

The operator's commands are those of docs/how-to/under-attack.md, unchanged. Needs root, clang, gcc,
libbpf-dev, and Debian's hping3, nmap, slowhttptest, iperf3, curl, nginx-light, tcpdump, tcpreplay
and nfdump.

Usage: scripts/xdp_trial.py [--folder FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from n3ic.meter.capture import Capture

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "how-to" / "under-attack.md"
SERVER = "10.77.0.1"
GATE = "10.77.0.2"
TOOLS = (
    "ip", "ethtool", "clang", "gcc", "hping3", "nmap", "slowhttptest", "iperf3", "curl", "nginx",
    "tcpdump", "tcpreplay", "nfacctd", "setpriv", "nsenter", "unshare",
)  # fmt: skip
PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin"))
ETHERNET, IPV4 = 14, 20
GROUPS = {
    "10.77.1.": "honest",
    "10.77.2.": "attackers of training",
    "10.77.3.": "attackers",
    "198.18.": "replayed",
    "198.19.": "replayed",
    "2001:": "replayed",
}
FIGURES = re.compile("packets_|decisions_|verdicts_|events|blocked|alarm")
MOUNTS = """for place in /opt /run /var/log /var/lib /etc/systemd/system; do
mount -t tmpfs trial $place; done
mkdir /run/n3ic /var/log/n3icd /var/lib/n3icd; mount -t bpf bpf /sys/fs/bpf"""
NGINX = """daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
worker_processes 1; events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/nginx-body; proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-f; uwsgi_temp_path {folder}/nginx-u;
  scgi_temp_path {folder}/nginx-s;
  server {{ listen 80; root {folder}/pages; error_page 405 =200 $uri; }}
}}
"""


class Side:
    """A network namespace with its own mounts, which lasts as long as its process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        words = ["unshare", "--net", "--mount", "setpriv", "--pdeathsig", "KILL", "sh", "-c"]
        self.holder = subprocess.Popen(
            [*words, "echo made; exec sleep infinity"], stdout=subprocess.PIPE
        )
        if self.holder.stdout is None or self.holder.stdout.readline() != b"made\n":
            raise SystemExit("expected the right to make network namespaces: run as root")
        self.pid = self.holder.pid
        self.log = (folder / "tools.log").open("ab")

    def command(self, *words: object) -> list[str]:
        """A command line that runs on this side, in the folder."""
        enter = ["nsenter", f"--target={self.pid}", "--net", "--mount", f"--wdns={self.folder}"]
        return [*enter, *map(str, words)]

    def run(self, *words: object, check: bool = True, seconds: float = 60) -> str:
        """Run a command to its end, and return what it printed."""
        process = subprocess.run(
            self.command(*words), capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
        self.log.write(f"$ {' '.join(map(str, words))}\n{process.stdout}{process.stderr}".encode())
        self.log.flush()
        if check and process.returncode:
            raise SystemExit(f"{' '.join(map(str, words))}: {process.stderr or process.stdout}")
        return process.stdout

    def start(self, *words: object, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command; it dies with this script."""
        streams: dict[str, Any] = {"stdout": self.log, "stderr": self.log} | options
        return subprocess.Popen(
            self.command("setpriv", "--pdeathsig", "KILL", "--", *words),
            stdin=subprocess.DEVNULL, **streams,
        )  # fmt: skip

    def close(self) -> None:
        """End the namespace; processes there must have ended before."""
        self.holder.kill()
        self.holder.wait()
        self.log.close()


def end(*processes: subprocess.Popen[Any], by: int = signal.SIGTERM) -> None:
    """End processes and wait for them."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(by)
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def two_sides(folder: Path) -> Iterator[tuple[Side, Side]]:
    """Make the site with its interface eth0 and the net with net0; frames are as on a wire."""
    site, net = Side(folder), Side(folder)
    try:
        site.run("sh", "-ec", MOUNTS)
        site.run("ip", "link", "add", "eth0", "type", "veth",
                 "peer", "name", "net0", "netns", net.pid)  # fmt: skip
        for side, link, address in ((site, "eth0", SERVER), (net, "net0", GATE)):
            side.run("sysctl", "-qw", f"net.ipv6.conf.{link}.disable_ipv6=1")
            side.run("ip", "link", "set", "lo", "up")
            side.run("ip", "address", "add", f"{address}/16", "dev", link)
            side.run("ip", "link", "set", link, "up")
            side.run("ethtool", "-K", link, "tso", "off", "gso", "off", "tx", "off")
        site.run("ip", "route", "add", "default", "via", GATE)
        for kind in (1, 2, 3):  # honest, training's attackers, later attackers
            for host in range(1, 40):
                net.run("ip", "address", "add", f"10.77.{kind}.{host}/16", "dev", "net0")
        yield site, net
    finally:
        site.close()
        net.close()


@contextlib.contextmanager
def servers(site: Side) -> Iterator[None]:
    """Run a web server and an iperf3 server."""
    pages = site.folder / "pages"
    pages.mkdir()
    for name, size in (("index.html", 4_000), ("small", 300), ("page", 60_000), ("big", 3_000_000)):
        (pages / name).write_bytes(os.urandom(size // 2).hex().encode())
    conf = site.folder / "nginx.conf"
    conf.write_text(NGINX.format(folder=site.folder))
    running = [site.start("nginx", "-c", conf)]
    running += [site.start("iperf3", "-s", "-p", port) for port in range(5201, 5206)]
    try:
        site.run("curl", "-sS", "--fail", "--retry", 9, "--retry-connrefused", "-o", "/dev/null",
                 "http://127.0.0.1/page")  # fmt: skip
        yield
    finally:
        end(*running)


# --- traffic -------------------------------------------------------------------------------------

ROOT_URL = f"http://{SERVER}"
VISITS = (
    f"curl -O {ROOT_URL}/small -o /dev/null {ROOT_URL}/page -o /dev/null",
    f"curl {ROOT_URL}/big",
    f"curl --limit-rate 60k {ROOT_URL}/page",
    f"curl --data-binary @pages/page {ROOT_URL}/index.html",
    f"curl -I {ROOT_URL}/index.html",
    f"curl --parallel {ROOT_URL}/index.html {ROOT_URL}/page {ROOT_URL}/small",
    f"curl {ROOT_URL}/index.html {ROOT_URL}/page {ROOT_URL}/small {ROOT_URL}/page",
)
LOADS = (
    ("-b", "20M"),
    ("-R", "-b", "20M"),
    ("-u", "-b", "4M"),
    ("-P", "3", "-b", "3M"),
)


def honest(net: Side, seconds: int, host: int) -> list[subprocess.Popen[bytes]]:
    """Start hosts that load and send pages, ping, try a closed port, and measure throughput.

    Each visit prints GOT or LOST and its host. Throughput goes to a JSON file for each host.
    """
    visits = [
        visit.replace("curl", "curl -sS --fail --max-time 12 --interface HOST", 1)
        for visit in VISITS
    ]
    visits.append(f"ping -q -c 3 -i 0.3 -W 2 -I HOST {SERVER}")
    visits.append(f"iperf3 -u -b 1M -t 1 -c {SERVER} -B HOST -p 5205")
    visits.append(f"! curl -sS --max-time 2 --interface HOST {ROOT_URL}:81/")
    until, started = int(time.time()) + seconds, []
    for i, visit in enumerate(visits):
        at = f"10.77.1.{host + i}"
        script = (
            f"while [ $(date +%s) -lt {until} ]; do if {visit.replace('HOST', at)} >/dev/null; "
            f"then echo GOT; else echo LOST $(date +%s.%N); fi; sleep {(i + 2) / 10}; done"
        )
        started.append(
            net.start("sh", "-c", script, stdout=(net.folder / f"visits-{at}").open("wb"))
        )
    for i, load in enumerate(LOADS):
        at = f"10.77.1.{host + len(visits) + i}"
        report = (net.folder / f"throughput-{at}").open("wb")
        started.append(
            net.start("iperf3", "-J", "-c", SERVER, "-B", at, "-p", 5201 + i, "-t", seconds,
                      *load, stdout=report)
        )  # fmt: skip
    return started


def replay(net: Side, seed: int) -> subprocess.Popen[bytes]:
    """A replayed capture of both directions, from 198.18/15."""
    folder = net.folder / f"replay-{seed}"
    if not folder.exists():
        net.run("n3ic", "data", "generate", "upc-aau-synthetic", "--flows", 300, "--seed", seed,
                "--out", folder)  # fmt: skip
    return net.start(
        "tcpreplay", "-q", "--pps", "600", "-i", "net0", folder / "packets_default.pcap"
    )


def hping(net: Side, host: str, words: str) -> subprocess.Popen[bytes]:
    """hping3 from a host, or from forged addresses."""
    source = ("--rand-source",) if host == "any" else ("-a", host)
    return net.start("hping3", "-q", "-n", "-I", "net0", *source, *words.split(), SERVER)


def nmap(net: Side, host: str, words: str) -> subprocess.Popen[bytes]:
    """A scan from a host."""
    return net.start("nmap", "-n", "-Pn", "-e", "net0", "-S", host, *words.split(), SERVER)


def slow(net: Side, host: str, words: str) -> subprocess.Popen[bytes]:
    """slowhttptest; its source address is that of the route."""
    net.run("ip", "route", "replace", f"{SERVER}/32", "dev", "net0", "src", host)
    return net.start("slowhttptest", "-u", f"{ROOT_URL}/", "-p", "2", *words.split())


Attack = tuple[Callable[[Side, str, str], "subprocess.Popen[bytes]"], str, str]
TRAINING: tuple[Attack, ...] = (
    (slow, "10.77.2.10", "-H -c 120 -r 50 -i 2 -l 16 -x 20"),
    (hping, "10.77.2.1", "-S -p 80 -i u4000 -c 800"),
    (hping, "10.77.2.2", "-S -p ++1 -w 512 -i u6000 -c 600"),
    (hping, "any", "-S -p 80 -i u3000 -c 1500"),
    (hping, "10.77.2.3", "--udp -p 53 -d 200 -i u4000 -c 600"),
    (hping, "10.77.2.4", "-S -p 80 -d 120 -k -s 7000 -i u6000 -c 400"),
    (hping, "10.77.2.5", "-A -p 80 -i u5000 -c 500"),
    (nmap, "10.77.2.6", "-sS -T4 -p 1-600"),
    (nmap, "10.77.2.7", "-sT -T4 -p 1-400"),
    (nmap, "10.77.2.8", "-sU -T4 --max-retries 0 --host-timeout 8 -p 1-200"),
    (nmap, "10.77.2.9", "-sV -T4 -p 80,5201 --host-timeout 8"),
    (slow, "10.77.2.11", "-B -c 100 -r 40 -i 1 -l 11 -s 8192 -x 10"),
    (slow, "10.77.2.12", "-X -c 100 -r 40 -l 8 -w 512 -y 1024 -n 1 -z 32"),
)
ATTACKS: tuple[Attack, ...] = (
    (hping, "10.77.3.1", "-S -p 443 -w 1024 -i u2000 -c 3000"),
    (hping, "10.77.3.2", "--udp -p 123 -d 400 -i u2500 -c 2000"),
    (nmap, "10.77.3.3", "-sS -T4 --max-retries 1 --host-timeout 6 -p 1000-1500"),
    (nmap, "10.77.3.4", "-sT -T4 --max-retries 1 --host-timeout 6 -p 2000-2300"),
    (nmap, "10.77.3.5", "-sU -T4 --max-retries 0 --host-timeout 6 -p 300-500"),
    (slow, "10.77.3.6", "-H -c 80 -r 40 -i 3 -l 10 -x 12"),
    (slow, "10.77.3.7", "-B -c 80 -r 40 -i 2 -l 10 -s 4096 -x 16"),
    (slow, "10.77.3.8", "-X -c 80 -r 40 -l 10 -w 256 -y 512 -n 2 -z 16"),
)


def attack(net: Side, attacks: Iterable[Attack]) -> list[subprocess.Popen[bytes]]:
    """Start attacks; those with the route's source address begin their flows first."""
    started = []
    for tool, host, words in attacks:
        started.append(tool(net, host, words))
        time.sleep(2.7 if tool is slow else 0.3)
    return started


# --- the operator --------------------------------------------------------------------------------


def blocks() -> list[str]:
    """The commands of the page, one text per block."""
    return re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


class Unit:
    """Does what systemd would do with the unit, as far as possible without systemd.

    The unit's command line runs in its working directory, with its capabilities and umask. Its
    limits, and its restrictions on files and system calls, are not applied.
    """

    def __init__(self, site: Side, interface: str) -> None:
        self.site, self.interface = site, interface
        self.process: subprocess.Popen[bytes] | None = None
        self.read = 0  # characters of its log that were read

    def setting(self, name: str) -> str:
        """A value of the unit that is installed on the site."""
        text = self.site.run("cat", "/etc/systemd/system/n3icd@.service")
        match = re.search(rf"^{name}=(.*)$", text, re.M)
        if not match:
            raise SystemExit(f"the unit has no {name}=")
        return match[1].replace("%I", self.interface).replace("%i", self.interface)

    def start(self, awaited: str = "room for") -> None:
        """Start n3icd, and wait until it reports what it loaded."""
        rights = [f"+{name.removeprefix('CAP_').lower()}"
                  for name in self.setting("CapabilityBoundingSet").split()]  # fmt: skip
        with (self.site.folder / "n3icd.log").open("ab") as log:
            self.process = self.site.start(
                "setpriv", f"--bounding-set=-all,{','.join(rights)}", "--inh-caps=-all",
                "--no-new-privs", "sh", "-c",
                f"umask {self.setting('UMask')}; cd {self.setting('WorkingDirectory')}; "
                f"exec {self.setting('ExecStart')}",
                stderr=log,
            )  # fmt: skip
        self.wait_for_text(awaited)

    def wait_for_text(self, text: str) -> None:
        """Wait until a text appears in n3icd's log after the part already read."""
        until = time.time() + 20
        while time.time() < until:
            log = (self.site.folder / "n3icd.log").read_text()
            if text in log[self.read :]:
                self.read = len(log)
                return
            if self.process and self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(
            f"n3icd did not report {text!r}: {(self.site.folder / 'n3icd.log').read_text()}"
        )

    def reload(self) -> None:
        """Do what ExecReload does."""
        if self.process is None:
            raise SystemExit("n3icd does not run")
        self.process.send_signal(signal.SIGHUP)
        self.wait_for_text("is loaded")

    def kill(self) -> None:
        """Kill -9."""
        if self.process:
            self.process.kill()
            self.process.wait()


def follow(site: Side, unit: Unit, block: str) -> None:
    """Run a block of the page on the site; this script replaces systemctl."""
    for own, lines in itertools.groupby(
        block.splitlines(keepends=True), lambda line: line.startswith("systemctl")
    ):
        if not own:
            site.run("bash", "-ec", "".join(lines), seconds=600)
            continue
        for line in lines:
            if "reload" in line:
                unit.reload()
            else:
                unit.start()


# --- measurements --------------------------------------------------------------------------------


def packets(path: Path) -> list[tuple[str, tuple[bytes, ...], bytes, float]]:
    """The source, flow, identity within the flow, and time of each IPv4 packet."""
    parsed = []
    with Capture(path) as capture:
        for data, _, time_ns in capture.packets():
            frame = data[ETHERNET:]
            if data[12:14] != b"\x08\x00" or len(frame) < IPV4 + 8:
                continue
            ports = frame[IPV4 : IPV4 + 4] if frame[9] in (6, 17) else b""
            flow = (*sorted((frame[12:16] + ports[:2], frame[16:20] + ports[2:])), frame[9:10])
            source = ".".join(map(str, frame[12:16]))
            parsed.append((source, flow, frame[4:6] + frame[IPV4 : IPV4 + 12], time_ns / 1e9))
    return parsed


@dataclass
class Reached:
    """Which of a host's packets passed the filter.

    Attributes:
        sent: packets that the host sent.
        arrived: packets that passed the filter.
        flows: flows that the host began.
        at_packet: number, within its flow, of the first packet that did not arrive; 0 for none.
        at_flow: number of that flow among the host's flows.
        of_host: number of that packet among the host's packets.
        seconds: seconds from the host's first packet to that packet.
        most: the most packets of one flow that arrived.
    """

    sent: int = 0
    arrived: int = 0
    flows: int = 0
    at_packet: int = 0
    at_flow: int = 0
    of_host: int = 0
    seconds: float = 0.0
    most: int = 0


def reached(before: Path, after: Path) -> dict[str, Reached]:
    """Compare a capture before the filter with one after it, by host."""
    behind = Counter((source, flow, one) for source, flow, one, _ in packets(after))
    hosts: dict[str, Reached] = defaultdict(Reached)
    flows: dict[str, dict[tuple[bytes, ...], list[int]]] = defaultdict(dict)
    begun: dict[str, float] = {}
    for source, flow, one, now in packets(before):
        host = hosts[source]
        begun.setdefault(source, now)
        counts = flows[source].setdefault(flow, [0, 0])
        counts[0] += 1
        host.sent += 1
        if behind[source, flow, one]:
            behind[source, flow, one] -= 1
            counts[1] += 1
            host.arrived += 1
            host.most = max(host.most, counts[1])
        elif not host.at_packet:
            host.at_packet, host.of_host = counts[0], host.sent
            host.at_flow = list(flows[source]).index(flow) + 1
            host.seconds = round(now - begun[source], 3)
    for source, host in hosts.items():
        host.flows = len(flows[source])
    return hosts


def figures(site: Side) -> dict[str, float]:
    """The figures that n3icd serves to Prometheus, without the interface's label."""
    text = site.run("curl", "-sS", "http://127.0.0.1:9435/metrics")
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {re.sub(r'interface="\w+",?', "", name).replace("{}", "").removeprefix("n3ic_xdp_"):
            float(value) for name, value in rows}  # fmt: skip


def visits(folder: Path) -> dict[str, tuple[int, int]]:
    """Successful and failed visits by host."""
    by_host = {}
    for path in sorted(folder.glob("visits-*")):
        text = path.read_text()
        by_host[path.name.removeprefix("visits-")] = (text.count("GOT"), text.count("LOST"))
        path.unlink()
    return by_host


def throughputs(folder: Path) -> dict[str, dict[str, float]]:
    """iperf3's Mbit/s by host: overall, and in the worst second."""
    by_host = {}
    for path in sorted(folder.glob("throughput-*")):
        report = json.loads(path.read_text())
        whole = report.get("end", {})
        rates = [one["sum"]["bits_per_second"] / 1e6 for one in report.get("intervals", [])]
        total = (whole.get("sum_received") or whole.get("sum") or {}).get("bits_per_second") or 0
        by_host[path.name.removeprefix("throughput-")] = {
            "mbit_s": round(total / 1e6, 2), "worst_second": round(min(rates, default=0), 2),
        }  # fmt: skip
        path.unlink()
    return by_host


@contextlib.contextmanager
def collector(site: Side) -> Iterator[Path]:
    """Debian's pmacct, which writes a line of JSON for each flow and class."""
    (site.folder / "primitives").write_text(
        "name=verdict field_type=32473:1 len=vlen semantics=str\n"
    )
    out = site.folder / "collected.json"
    (site.folder / "nfacctd.conf").write_text(
        "nfacctd_ip: 127.0.0.1\nnfacctd_port: 4739\nplugins: print\nprint_output: json\n"
        f"print_refresh_time: 1\nprint_output_file: {out}\nprint_output_file_append: true\n"
        "aggregate: src_host, verdict\n"
        f"aggregate_primitives: {site.folder}/primitives\n"
    )
    running = site.start("nfacctd", "-f", site.folder / "nfacctd.conf")
    try:
        yield out
    finally:
        end(running, by=signal.SIGINT)


def collected(path: Path) -> dict[str, dict[str, int]]:
    """The records that the collector got, by the first byte of the source and by class."""
    classes_of: dict[str, Counter[str]] = defaultdict(Counter)
    for line in path.read_text().splitlines():
        row = json.loads(line)
        classes_of[group(row["ip_src"])][row["verdict"]] += 1
    return {name: dict(classes) for name, classes in classes_of.items()}


def group(source: str) -> str:
    """The group of hosts to which a source belongs."""
    for start, name in GROUPS.items():
        if source.startswith(start):
            return name
    return "others"


@contextlib.contextmanager
def recorded(site: Side, net: Side, name: str) -> Iterator[tuple[Path, Path]]:
    """Capture before and after the filter."""
    paths = site.folder / f"{name}-sent", site.folder / f"{name}-arrived"
    running = [
        side.start(
            "tcpdump", "-i", link, "-Q", way, "-s", "80", "-B", "16384", "-Z", "root", "-w", path
        )
        for side, link, way, path in (
            (net, "net0", "out", paths[0]),
            (site, "eth0", "in", paths[1]),
        )
    ]
    time.sleep(1)
    try:
        yield paths
    finally:
        time.sleep(0.5)
        end(*running, by=signal.SIGINT)


def wait(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Wait for tools, and end those that the filter prevents from ending."""
    until = time.time() + seconds
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, until - time.time()))
    end(*processes)


# --- the trial -----------------------------------------------------------------------------------


def record(site: Side, unit: Unit, net: Side, steps: Sequence[str]) -> None:
    """Record a class for each block of the page."""
    for step, attacked, seconds in zip(steps, (False, True), (9, 16), strict=True):
        recorder = threading.Thread(target=follow, args=(site, unit, step))
        recorder.start()
        time.sleep(1.5)
        going = [*honest(net, seconds, 1), replay(net, 1 + attacked)]
        if attacked:
            going += attack(net, TRAINING)
        wait(going, seconds + 3)
        recorder.join()


def prepare(site: Side, unit: Unit, net: Side, steps: Sequence[str], trained: Path | None) -> None:
    """Record and train as the page says, or take what an earlier trial left."""
    if trained is None:
        record(site, unit, net, steps[:2])
        print_progress("training")
        follow(site, unit, steps[2])
        return
    for name in ("card", "run", "flows.parquet", "sure.n3ic"):
        site.run("cp", "-r", trained / name, name)
    site.run("ethtool", "-K", "eth0", "gro", "off")


def measure_state(site: Side, paths: tuple[Path, Path]) -> dict[str, Any]:
    """What has passed since the captures began, by sender, and how visitors fared."""
    hosts = reached(*paths)
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for source, host in hosts.items():
        sums[group(source)].update(hosts=1, sent=host.sent, arrived=host.arrived)
    listed = json.loads(site.run("n3ic", "xdp", "list", "eth0", "--json"))
    status = json.loads(site.run("n3ic", "xdp", "status", "eth0", "--json"))
    away = [one["target"] for one in listed["decided"]]
    return {
        "attackers": {source: vars(host) for source, host in sorted(hosts.items())
                      if group(source) == "attackers"},
        "packets": {name: dict(counts) for name, counts in sums.items()},
        "blocked": dict(Counter(map(group, away))),
        "honest hosts blocked": [one for one in away if group(one) in ("honest", "replayed")],
        "visits": visits(site.folder),
        "throughput": throughputs(site.folder),
        "alarms": status["alarms"],
        "figures": {name: value for name, value in figures(site).items()
                    if value and FIGURES.match(name)},
    }  # fmt: skip


def dry_run(site: Side, net: Side) -> dict[str, Any]:
    """Everyday traffic and an attack from the training; nothing is dropped."""
    with recorded(site, net, "dry") as paths:
        going = [*honest(net, 7, 1), replay(net, 3)]
        going.append(hping(net, "10.77.2.1", "-S -p 80 -i u4000 -c 500"))
        wait(going, 14)
    return measure_state(site, paths)


def in_earnest(site: Side, net: Side) -> dict[str, Any]:
    """Attacks from other hosts and with other parameters than in the training."""
    with recorded(site, net, "earnest") as paths:
        going = [*honest(net, 16, 1), replay(net, 4)]
        time.sleep(1)
        going += attack(net, ATTACKS)
        wait(going, 8)
    return measure_state(site, paths)


def over_a_kill(site: Side, unit: Unit, net: Side, update: str) -> dict[str, Any]:
    """Kill n3icd, start it again, and give it another model; attacks begin at each step."""
    syn, udp = "-S -p 8080 -w 4096 -i u4000 -c 1000", "--udp -p 161 -d 90 -i u4000 -c 1000"
    with recorded(site, net, "kill") as paths:
        going = honest(net, 11, 1)
        time.sleep(1)
        going.append(hping(net, "10.77.3.11", syn))
        time.sleep(2)
        unit.kill()
        going.append(hping(net, "10.77.3.12", udp))
        time.sleep(2)
        unit.start("took over the pinned program")
        going.append(hping(net, "10.77.3.13", udp))
        time.sleep(1)
        follow(site, unit, update)
        going.append(hping(net, "10.77.3.14", syn))
        wait(going, 8)
    results = measure_state(site, paths)
    before = decisions(site)
    time.sleep(1.5)  # n3icd writes at once, but flows are still ending
    lines = site.run("cat", "/var/log/n3icd/eth0.json").splitlines()
    return results | {"decisions": [before, decisions(site)], "events in the file": len(lines)}


def decisions(site: Side) -> int:
    """The number of decisions that the program has counted."""
    values = figures(site)
    return int(sum(values[name] for name in values if name.startswith("decisions_total")))


def forged(site: Side, net: Side) -> dict[str, Any]:
    """A flood from forged addresses, and one packet each as if from two visitors.

    The operator allowed one of the two, 10.77.1.1.
    """
    site.run("n3ic", "xdp", "allow", "eth0", "10.77.1.1")
    with recorded(site, net, "forged") as paths:
        going = honest(net, 8, 1)
        time.sleep(2)
        for host in ("10.77.1.1", "10.77.1.5"):
            going.append(hping(net, host, "-S -p 80 -c 1"))
        going.append(hping(net, "any", "-S -p 80 -i u100 -c 20000"))
        wait(going, 10)
    return measure_state(site, paths)


def print_progress(what: str) -> None:
    """Print the progress of the trial."""
    print(f"{time.monotonic():8.1f}  {what}", file=sys.stderr, flush=True)


def trial(folder: Path, trained: Path | None) -> dict[str, Any]:
    """Run the whole trial, and return the results."""
    results: dict[str, Any] = {}
    steps = blocks()
    with two_sides(folder) as (site, net), servers(site):
        unit = Unit(site, "eth0")
        print_progress("recording")
        prepare(site, unit, net, steps, trained)
        with collector(site) as records:
            print_progress("dry run")
            follow(site, unit, steps[3])
            results["dry run"] = dry_run(site, net)
            follow(site, unit, steps[4])
            if results["dry run"]["honest hosts blocked"]:
                print_progress("dry run again")
                follow(site, unit, steps[5])
                results["dry run"] = dry_run(site, net)
            print_progress("in earnest")
            follow(site, unit, steps[6])
            with ThreadPoolExecutor(1) as trainer:
                other = trainer.submit(follow, site, unit, steps[7])
                results["in earnest"] = in_earnest(site, net)
                print_progress("training another model")
                other.result()
            print_progress("kill and update")
            results["kill and update"] = over_a_kill(site, unit, net, steps[8])
            print_progress("forged sources")
            results["forged sources"] = forged(site, net)
            unit.kill()
        results["collected"] = collected(records)
        site.run("cp", "/var/log/n3icd/eth0.json", "events.json")
    return results


def main() -> None:
    """Run the trial in a folder and print what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="new folder that keeps captures and logs")
    parser.add_argument("--trained", type=Path, help="folder of an earlier trial, for its network")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    missing = [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]
    if missing:
        parser.error(f"expected {', '.join(missing)} to be installed")
    os.environ["PATH"] = PATH
    with contextlib.ExitStack() as stack:
        folder = arguments.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xdp-trial-")))
        else:
            folder.mkdir(parents=True)
        results = trial(folder, arguments.trained)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
