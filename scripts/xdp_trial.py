#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attack a web server that n3icd guards, with real tools, in two network namespaces.

The site has nginx, iperf3, dnsmasq, a QUIC server, an IPFIX collector and n3icd, which runs with
the command line and the capabilities of its unit. The net has visitors of eight kinds and hosts
that attack, over IPv4 and IPv6. The traffic of both is recorded and labelled by host, a network
is trained on it, and n3icd is started with its policy, first as a dry run, then for real. Then
other hosts attack in ten ways, some of them new, while three more kinds of visitors come: over
IPv4, IPv6, and IPv4 in a VLAN. n3icd is killed, started again, and given another model. Both
namespaces end with this script.

The operator's commands are those of docs/how-to/under-attack.md, unchanged. Needs root, clang, gcc,
libbpf-dev, Debian's hping3, nmap, slowhttptest, iperf3, curl, nginx-light, tcpdump, tcpreplay,
pmacct, dnsmasq-base, dnsperf, dnsutils and netcat-openbsd, and aioquic.

Usage: scripts/xdp_trial.py [--folder FOLDER] [--without-sources] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from n3ic.meter.capture import Capture

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "how-to" / "under-attack.md"
VISITORS = ROOT / "scripts" / "xdp_trial_visitors.py"
TAGS = ROOT / "scripts" / "xdp_trial_vlan.c"
SERVERS = {4: "10.77.0.1", 6: "fd77::1"}
SERVER = SERVERS[4]
GATE = "10.77.0.2"
MACS = {"eth0": "02:00:00:00:00:01", "net0": "02:00:00:00:00:02"}
TOOLS = (
    "ip", "ethtool", "clang", "gcc", "hping3", "nmap", "slowhttptest", "iperf3", "curl", "nginx",
    "tcpdump", "tcpreplay", "nfacctd", "setpriv", "nsenter", "unshare", "nping", "dnsmasq",
    "dnsperf", "dig", "nc", "openssl", "tc",
)  # fmt: skip
PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin"))
ETHERNET, IPV4 = 14, 20
GROUPS = {
    "10.77.1.": "honest",
    "10.77.2.": "attackers of training",
    "10.77.3.": "attackers",
    "fd77:0:1:": "honest",
    "fd77:0:2:": "attackers of training",
    "fd77:0:3:": "attackers",
    "198.18.": "replayed",
    "198.19.": "replayed",
    "2001:": "replayed",
}
BY_SOURCE = (" --sources", " --columns '!src_unanswered'")  # what the page says for these features
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
  server {{ listen 80; listen [::]:80; root {folder}/pages; error_page 405 =200 $uri; }}
}}
"""


HOSTS = 200  # of each part of the net and family


def address(family: int, kind: int, host: int) -> str:
    """A host of the net; over IPv6, each has a /64 of its own, as sources are told apart by it."""
    return f"10.77.{kind}.{host}" if family == 4 else f"fd77:0:{kind}:{host:x}::1"


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
        for side, link, host in ((site, "eth0", 1), (net, "net0", 2)):
            side.run("ip", "link", "set", "lo", "up")
            side.run("ip", "address", "add", f"10.77.0.{host}/16", "dev", link)
            side.run("ip", "address", "add", f"fd77::{host}/32", "dev", link, "nodad")
            side.run("ip", "link", "set", link, "address", MACS[link], "up")
            side.run(
                "ethtool", "-K", link, "tso", "off", "gso", "off", "tx", "off", "txvlan", "off"
            )
        site.run("ip", "route", "add", "default", "via", GATE)
        added = [
            f"address add {address(family, kind, host)}/{length} dev net0 {flags}"
            for kind in (1, 2, 3)  # honest, training's attackers, later attackers
            for host in range(1, HOSTS)
            for family, length, flags in ((4, 16, ""), (6, 32, "nodad"))
        ]
        (folder / "addresses").write_text("\n".join(added) + "\n")
        net.run("ip", "-batch", folder / "addresses")
        yield site, net
    finally:
        site.close()
        net.close()


@contextlib.contextmanager
def servers(site: Side) -> Iterator[None]:
    """Run servers: web, iperf3, DNS, QUIC and an echo in place of NTP."""
    pages = site.folder / "pages"
    pages.mkdir()
    for name, size in (("index.html", 4_000), ("small", 300), ("page", 60_000), ("big", 3_000_000)):
        (pages / name).write_bytes(os.urandom(size // 2).hex().encode())
    conf = site.folder / "nginx.conf"
    conf.write_text(NGINX.format(folder=site.folder))
    running = [site.start("nginx", "-c", conf)]
    running += [site.start("iperf3", "-s", "-p", port) for port in IPERF_PORTS]
    running.append(
        site.start(
            "dnsmasq",
            "-k",
            "-u",
            "root",
            "--conf-file=/dev/null",
            "--pid-file",
            "--no-resolv",
            "--address=/#/10.77.0.1",
            "--address=/#/fd77::1",
        )
    )
    pair = site.folder / "certificate.pem", site.folder / "key.pem"
    site.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=site",
             "-out", pair[0], "-keyout", pair[1])  # fmt: skip
    running.append(site.start(sys.executable, VISITORS, "serve", *pair))
    names = (f"host{number}.example A\n" for number in range(1000))
    (site.folder / "names").write_text("".join(names))
    try:
        site.run("curl", "-sS", "--fail", "--retry", 9, "--retry-connrefused", "-o", "/dev/null",
                 "http://127.0.0.1/page")  # fmt: skip
        yield
    finally:
        end(*running)


# --- traffic -------------------------------------------------------------------------------------

ROOT_URL = f"http://{SERVER}"
CURL = "curl -sS --fail --max-time 12 --interface HOST"
FIFTEEN = " ".join(f"URL/page?{number}" for number in range(15))
# Kinds of visitors; a kind has sixteen hosts, and the first is 16 for the first kind. Each visit is
# run again and again.
VISITS = {
    "pages": (
        f"{CURL} -O URL/small -o /dev/null URL/page -o /dev/null",
        f"{CURL} -I URL/index.html",
        f"{CURL} --parallel URL/index.html URL/page URL/small",
        f"{CURL} URL/index.html URL/page URL/small URL/page",
    ),
    "downloads": (
        f"{CURL} URL/big",
        f"{CURL} --limit-rate 60k URL/page",
        f"{CURL} --data-binary @pages/page URL/index.html",
    ),
    "QUIC": ("quic",),
    "DNS resolver": (
        "dig +tries=1 +time=2 -b HOST @SERVER host$(date +%N).example",
        "dnsperf -a HOST -s SERVER -d names -c 8 -n 1 -Q 8 -l 2",
    ),
    "NTP stand-in": ("ntp",),
    "ping": ("ping -q -c 3 -i 0.3 -W 2 -I HOST SERVER",),
    "UDP streams": ("iperf3 -u -b 1M -t 1 -c SERVER -B HOST -p PORT5",),
    "closed port": ("! curl -sS --max-time 2 --interface HOST URL:81/",),
}
UNSEEN = {  # in training; the operator's table of hosts does not know them
    "call": ("iperf3 -u --bidir -l 172 -b 69k -t 3 -c SERVER -B HOST -p PORT6",),
    "office": (f"{CURL} --parallel --parallel-immediate --parallel-max 15 {FIFTEEN}",),
    "health check": ("nc -z -w 2 -s HOST SERVER 80",),
}
LOADS = (  # of iperf3, as long as the others visit
    ("downloads", "-b", "8M"),
    ("downloads", "-R", "-b", "8M"),
    ("UDP streams", "-u", "-b", "2M"),
    ("downloads", "-P", "3", "-b", "2M"),
)
IPERF_PORTS = [*range(5201, 5207), *range(5211, 5217)]  # by family: LOADS, a visit, a call
_SIXTEEN = 16


def visitors(family: int) -> list[tuple[str, str, str]]:
    """Address, kind and command of each visitor that makes short visits."""
    return [
        (address(family, 1, _SIXTEEN * number + i), kind, visit)
        for number, (kind, visits_of_kind) in enumerate((VISITS | UNSEEN).items(), 1)
        for i, visit in enumerate(visits_of_kind)
    ]


def loaders(family: int) -> list[tuple[str, str, Sequence[str]]]:
    """Address, kind and iperf3's options of each visitor that stays."""
    first = {kind: _SIXTEEN * number + 8 for number, kind in enumerate(VISITS, 1)}
    return [
        (address(family, 1, first[kind] + i), kind, words) for i, (kind, *words) in enumerate(LOADS)
    ]


def kinds_of(family: int) -> dict[str, str]:
    """What each honest host of a family does, by address."""
    return {at: kind for at, kind, _ in (*visitors(family), *loaders(family))}


def honest(
    net: Side, seconds: int, family: int = 4, *, unseen: bool = False
) -> list[subprocess.Popen[bytes]]:
    """Start visitors of each kind of the training, and of the others if ``unseen``.

    Each visit prints GOT or LOST. Throughput goes to a JSON file for each host.
    """
    server = SERVERS[family]
    until, started = int(time.time()) + seconds, []
    first_port = IPERF_PORTS[0 if family == 4 else 6]
    words = {"URL": f"http://[{server}]" if family == 6 else ROOT_URL, "SERVER": server}
    words |= {f"PORT{i}": str(first_port + i - 1) for i in (5, 6)}
    for i, (at, kind, visit) in enumerate(visitors(family)):
        if kind in UNSEEN and not unseen:
            continue
        command = ["bash", "-c"]
        if visit in ("quic", "ntp"):
            command = [sys.executable, str(VISITORS), visit, at, server, str(seconds)]
        else:
            for name, value in (words | {"HOST": at}).items():
                visit = visit.replace(name, value)
            command.append(
                f"while [ $(date +%s) -lt {until} ]; do if {visit} >/dev/null; "
                f"then echo GOT; else echo LOST $(date +%s.%N); fi; sleep {0.4 + i / 10}; done"
            )
        started.append(net.start(*command, stdout=(net.folder / f"visits-{at}").open("wb")))
    for i, (at, _, load) in enumerate(loaders(family)):
        report = (net.folder / f"throughput-{at}").open("wb")
        started.append(
            net.start("iperf3", "-J", "-c", server, "-B", at, "-p", first_port + i, "-t", seconds,
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


def family_of(host: str) -> int:
    """4 or 6."""
    return 6 if ":" in host else 4


def nmap(net: Side, host: str, words: str) -> subprocess.Popen[bytes]:
    """A scan from a host."""
    family = family_of(host)
    options = ["-6"] if family == 6 else []
    options += ["-n", "-Pn", "-e", "net0", "-S", host]
    return net.start("nmap", *options, *words.split(), SERVERS[family])


def nping(net: Side, host: str, words: str) -> subprocess.Popen[bytes]:
    """Nping over IPv6, which hping3 does not speak; every packet but its payload is its own."""
    ends = ("--source-mac", MACS["net0"], "--dest-mac", MACS["eth0"], "-e", "net0", "-S", host)
    return net.start("nping", "-6", "-q", "-N", *ends, *words.split(), SERVERS[6])


def ping(net: Side, host: str, words: str) -> subprocess.Popen[bytes]:
    """A flood of echo requests."""
    return net.start("ping", "-q", "-I", host, *words.split(), SERVERS[family_of(host)])


def dns(net: Side, host: str, words: str) -> subprocess.Popen[bytes]:
    """Queries from several ports."""
    return net.start(
        "dnsperf", "-a", host, "-s", SERVERS[family_of(host)], "-d", "names", *words.split()
    )


def guess(net: Side, host: str, words: str) -> subprocess.Popen[bytes]:
    """Passwords tried by curl, each over a connection of its own."""
    script = (
        f"seq {words} | xargs -P 4 -I N curl -sS -o /dev/null --max-time 2 --interface {host} "
        f"-d user=admin -d password=N {url(host)}/index.html"
    )
    return net.start("sh", "-c", script)


def url(host: str) -> str:
    """The site's address, of a host's family."""
    return f"http://[{SERVERS[6]}]" if family_of(host) == 6 else ROOT_URL


def slow(net: Side, host: str, words: str) -> subprocess.Popen[bytes]:
    """slowhttptest; its source address is that of the route."""
    to = f"{SERVERS[6]}/128" if family_of(host) == 6 else f"{SERVER}/32"
    net.run("ip", "route", "replace", to, "dev", "net0", "src", host)
    return net.start("slowhttptest", "-u", f"{url(host)}/", "-p", "2", *words.split())


@dataclass(frozen=True)
class Attack:
    """A tool and its options."""

    name: str
    tool: Callable[[Side, str, str], subprocess.Popen[bytes]]
    words: str
    forged: bool = False  # its source addresses
    often: int = 1  # hosts that do so, one after the other: a flow counts little in training


TRAINING = {
    4: (
        Attack("slowhttptest -H", slow, "-H -c 120 -r 50 -i 2 -l 16 -x 20"),
        Attack("SYN flood", hping, "-S -p 80 -i u4000 -c 800"),
        Attack("SYN flood, rising ports", hping, "-S -p ++1 -w 512 -i u6000 -c 600"),
        Attack("SYN flood, forged", hping, "-S -p 80 -i u3000 -c 1500", forged=True),
        Attack("hping3 --udp, rising ports", hping, "--udp -p ++100 -d 200 -i u4000 -c 800"),
        Attack("hping3 --udp -k", hping, "--udp -k -s 7000 -p 443 -d 600 -i u3000 -c 1500"),
        Attack("hping3 --udp -k", hping, "--udp -k -s 80 -p 53 -d 100 -i u1500 -c 250", often=12),
        Attack("hping3 -S -k", hping, "-S -p 80 -d 120 -k -s 7000 -i u6000 -c 400"),
        Attack("hping3 -A", hping, "-A -p 80 -i u5000 -c 500"),
        Attack("ICMP flood", hping, "--icmp -d 56 -i u3000 -c 1500"),
        Attack("ICMP flood", hping, "--icmp -d 200 -i u1500 -c 250", often=12),
        Attack("DNS, 400/s", dns, "-Q 300 -l 4 -c 60"),
        Attack("nmap -sS", nmap, "-sS -T4 -p 1-600"),
        Attack("nmap -sT", nmap, "-sT -T4 -p 1-400"),
        Attack("nmap -sU", nmap, "-sU -T4 --max-retries 0 --host-timeout 8 -p 1-200"),
        Attack("slowhttptest -B", slow, "-B -c 100 -r 40 -i 1 -l 11 -s 8192 -x 10"),
        Attack("slowhttptest -X", slow, "-X -c 100 -r 40 -l 8 -w 512 -y 1024 -n 1 -z 32"),
    ),
    6: (
        Attack("slowhttptest -H", slow, "-H -c 80 -r 50 -i 2 -l 12 -x 20"),
        Attack("nping --tcp", nping, "--tcp --flags syn -p 1000-1799 -c 1 --rate 200"),
        Attack("nping --udp, rising ports", nping, "--udp -p 2000-2799 --data-length 200 -c 1 "
               "--rate 200"),
        Attack("ICMP flood", ping, "-i 0.003 -c 1200"),
        Attack("ICMP flood", ping, "-i 0.002 -c 250", often=8),
        Attack("DNS, 400/s", dns, "-Q 300 -l 4 -c 60"),
        Attack("nmap -sS", nmap, "-sS -T4 -p 1-500"),
    ),
}  # fmt: skip
# Ten attacks; of those in UNTRAINED, the training has none like it.
ATTACKS = {
    4: (
        Attack("slowhttptest -H", slow, "-H -c 80 -r 40 -i 3 -l 10 -x 12"),
        Attack("SYN flood", hping, "-S -p 443 -w 1024 -i u2000 -c 3000"),
        Attack("hping3 --udp, rising ports", hping, "--udp -p ++5000 -d 400 -i u2500 -c 2000"),
        Attack("hping3 --udp, 1,200 bytes", hping, "--udp -p 9999 -d 1200 -i u2500 -c 2000"),
        Attack("hping3 --udp -k", hping, "--udp -k -s 5353 -p 500 -d 300 -i u2500 -c 2500"),
        Attack("ICMP flood", hping, "--icmp -d 120 -i u2500 -c 2500"),
        Attack("DNS, 400/s", dns, "-Q 400 -l 5 -c 40"),
        Attack("nmap -sS", nmap, "-sS -T4 --max-retries 1 --host-timeout 6 -p 1000-1500"),
        Attack("nmap -sV", nmap, "-sV -T4 -p 53,80,5201 --host-timeout 8"),
        Attack("curl, passwords", guess, "150"),
    ),
    6: (
        Attack("slowhttptest -H", slow, "-H -c 60 -r 40 -i 3 -l 10 -x 12"),
        Attack("nping --tcp", nping, "--tcp --flags syn -p 5000-6499 -c 1 --rate 400"),
        Attack("nping --udp, rising ports", nping, "--udp -p 7000-8499 --data-length 400 -c 1 "
               "--rate 400"),
        Attack("nping --udp, 1,200 bytes", nping, "--udp -g 99 -p 9999 --data-length 1200 -c 2000 "
               "--rate 400"),
        Attack("nmap -sU", nmap, "-sU -T4 --max-retries 0 --host-timeout 6 -p 300-500"),
        Attack("ICMP flood", ping, "-i 0.002 -s 120 -c 2500"),
        Attack("DNS, 400/s", dns, "-Q 400 -l 5 -c 40"),
        Attack("nmap -sS", nmap, "-sS -T4 --max-retries 1 --host-timeout 6 -p 1000-1500"),
        Attack("nmap -sV", nmap, "-sV -T4 -p 53,80,5201 --host-timeout 8"),
        Attack("curl, passwords", guess, "150"),
    ),
}  # fmt: skip
UNTRAINED = ("hping3 --udp, 1,200 bytes", "nping --udp, 1,200 bytes", "nmap -sV",
             "curl, passwords")  # fmt: skip


def attackers(
    attacks: Iterable[Attack], family: int, kind: int, first: int = 1
) -> dict[str, Attack]:
    """Attacks by the host that makes them."""
    each = [one for one in attacks for _ in range(one.often)]
    return {address(family, kind, first + i): one for i, one in enumerate(each)}


def attack(net: Side, attacks: Mapping[str, Attack]) -> list[subprocess.Popen[bytes]]:
    """Start attacks; those with the route's source address begin their flows first."""
    started = []
    for host, one in attacks.items():
        started.append(one.tool(net, "any" if one.forged else host, one.words))
        time.sleep(2.7 if one.tool is slow else 0.3)
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
            site.run("bash", "-ec", "".join(lines), seconds=1800)
            continue
        for line in lines:
            if "reload" in line:
                unit.reload()
            else:
                unit.start()


# --- measurements --------------------------------------------------------------------------------


def packets(path: Path) -> list[tuple[str, tuple[bytes, ...], bytes, float]]:
    """The source, flow, identity within the flow, and time of each IP packet, tagged or not.

    Of IPv6, packets with extension headers and neighbour discovery are left out.
    """
    parsed = []
    with Capture(path) as capture:
        for data, _, time_ns in capture.packets():
            at = ETHERNET + 4 * (data[12:14] == b"\x81\x00")
            kind, frame = data[at - 2 : at], data[at:]
            if kind == b"\x08\x00":
                start, first, length, protocol, number = IPV4, 12, 4, frame[9], frame[4:6]
            elif kind == b"\x86\xdd":
                start, first, length, protocol, number = 40, 8, 16, frame[6], b""
                if protocol not in (6, 17, 58) or (protocol == 58 and frame[start] > 129):
                    continue
            else:
                continue
            if len(frame) < start + 8:
                continue
            ports = frame[start : start + 4] if protocol in (6, 17) else b""
            ends = frame[first : first + length], frame[first + length : first + 2 * length]
            flow = (*sorted((ends[0] + ports[:2], ends[1] + ports[2:])), bytes([protocol]))
            identity = number + frame[start : start + (12 if number else 20)]
            parsed.append((str(ip_address(ends[0])), flow, identity, time_ns / 1e9))
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
        flows_arrived: flows of which a packet arrived.
        late: share of the second half of the host's packets that arrived.
    """

    sent: int = 0
    arrived: int = 0
    flows: int = 0
    at_packet: int = 0
    at_flow: int = 0
    of_host: int = 0
    seconds: float = 0.0
    most: int = 0
    flows_arrived: int = 0
    late: float = 1.0

    @property
    def stopped(self) -> bool:
        """Whether nine in ten later packets were dropped, and few flows or packets arrived."""
        return self.late <= 0.1 and (self.flows_arrived <= 20 or self.arrived <= 1000)


def reached(before: Path, after: Path) -> dict[str, Reached]:
    """Compare a capture before the filter with one after it, by host."""
    behind = Counter((source, flow, one) for source, flow, one, _ in packets(after))
    hosts: dict[str, Reached] = defaultdict(Reached)
    flows: dict[str, dict[tuple[bytes, ...], list[int]]] = defaultdict(dict)
    begun: dict[str, float] = {}
    passed: dict[str, list[bool]] = defaultdict(list)
    for source, flow, one, now in packets(before):
        host = hosts[source]
        begun.setdefault(source, now)
        counts = flows[source].setdefault(flow, [0, 0])
        counts[0] += 1
        host.sent += 1
        passed[source].append(behind[source, flow, one] > 0)
        if passed[source][-1]:
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
        host.flows_arrived = sum(arrived > 0 for _, arrived in flows[source].values())
        later = passed[source][host.sent // 2 :]
        host.late = round(sum(later) / len(later), 4)
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
    """Record what each block of the page records."""
    for step, attacked, seconds in zip(steps, (False, True), (9, 34), strict=True):
        recorder = threading.Thread(target=follow, args=(site, unit, step))
        recorder.start()
        time.sleep(1.5)
        going = [*honest(net, seconds), *honest(net, seconds, 6), replay(net, 1 + attacked)]
        if attacked:
            for family, attacks in TRAINING.items():
                going += attack(net, attackers(attacks, family, 2))
        wait(going, seconds + 3)
        recorder.join()
    visits(site.folder)
    throughputs(site.folder)


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


def measure_state(
    site: Side, paths: tuple[Path, Path], attacks: Mapping[str, Attack] | None = None
) -> dict[str, Any]:
    """What has passed since the captures began, by sender, and how visitors fared."""
    names = {host: one.name for host, one in (attacks or {}).items()}
    kinds = kinds_of(4) | kinds_of(6)
    hosts = reached(*paths)
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for source, host in hosts.items():
        sums[group(source)].update(hosts=1, sent=host.sent, arrived=host.arrived)
    listed = json.loads(site.run("n3ic", "xdp", "list", "eth0", "--json"))
    status = json.loads(site.run("n3ic", "xdp", "status", "eth0", "--json"))
    away = [one["target"] for one in listed["decided"]]
    return {
        "attackers": {source: {"attack": names.get(source, ""), "stopped": host.stopped,
                         "trained": names.get(source) not in UNTRAINED}
                      | vars(host)
                      for source, host in sorted(hosts.items()) if group(source) == "attackers"},
        "visitors": {source: {"kind": kinds[source], "sent": host.sent, "arrived": host.arrived}
                     for source, host in sorted(hosts.items()) if source in kinds},
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
        going = [*honest(net, 7), *honest(net, 7, 6), replay(net, 3)]
        going.append(hping(net, "10.77.2.1", "-S -p 80 -i u4000 -c 500"))
        wait(going, 14)
    return measure_state(site, paths)


def in_earnest(site: Side, net: Side, family: int, first: int = 1) -> dict[str, Any]:
    """Attacks from other hosts and with other parameters than in the training, or of other kinds.

    Args:
        site: the site.
        net: the net.
        family: 4 or 6.
        first: number of the first attacker; one that was stopped before is blocked for a minute.
    """
    attacks = attackers(ATTACKS[family], family, 3, first)
    with recorded(site, net, f"earnest-{family}-{first}") as paths:
        going = honest(net, 18, family, unseen=True)
        if family == 4:
            going.append(replay(net, 4))
        time.sleep(1)
        going += attack(net, attacks)
        wait(going, 14)
    return measure_state(site, paths, attacks)


@contextlib.contextmanager
def tagged(site: Side, net: Side) -> Iterator[None]:
    """Give every packet that arrives a VLAN tag, which is removed behind XDP."""
    program = site.folder / "vlan.o"
    here = f"-I/usr/include/{os.uname().machine}-linux-gnu"
    site.run("clang", "-O2", "-target", "bpf", here, "-c", TAGS, "-o", program)
    sides = ((net, "net0", "egress", "tc/tag"), (site, "eth0", "ingress", "tc/untag"))
    for side, link, way, section in sides:
        side.run("tc", "qdisc", "add", "dev", link, "clsact")
        side.run("tc", "filter", "add", "dev", link, way, "bpf", "direct-action",
                 "obj", program, "sec", section)  # fmt: skip
    try:
        yield
    finally:
        for side, link, _, _ in sides:
            side.run("tc", "qdisc", "del", "dev", link, "clsact")


def over_a_kill(site: Side, unit: Unit, net: Side, update: str) -> dict[str, Any]:
    """Kill n3icd, start it again, and give it another model; attacks begin at each step."""
    syn, udp = "-S -p 8080 -w 4096 -i u4000 -c 1000", "--udp -p 161 -d 90 -i u4000 -c 1000"
    with recorded(site, net, "kill") as paths:
        going = honest(net, 11)
        time.sleep(1)
        going.append(hping(net, "10.77.3.91", syn))
        time.sleep(2)
        unit.kill()
        going.append(hping(net, "10.77.3.92", udp))
        time.sleep(2)
        unit.start("took over the pinned program")
        going.append(hping(net, "10.77.3.93", udp))
        time.sleep(1)
        follow(site, unit, update)
        going.append(hping(net, "10.77.3.94", syn))
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

    The operator allowed one of the two, 10.77.1.16.
    """
    site.run("n3ic", "xdp", "allow", "eth0", "10.77.1.16")
    with recorded(site, net, "forged") as paths:
        going = honest(net, 8)
        time.sleep(2)
        for host in ("10.77.1.16", "10.77.1.17"):
            going.append(hping(net, host, "-S -p 80 -c 1"))
        going.append(hping(net, "any", "-S -p 80 -i u100 -c 20000"))
        wait(going, 10)
    return measure_state(site, paths)


def print_progress(what: str) -> None:
    """Print the progress of the trial."""
    print(f"{time.monotonic():8.1f}  {what}", file=sys.stderr, flush=True)


def trial(folder: Path, trained: Path | None, *, sources: bool = True) -> dict[str, Any]:
    """Run the whole trial, and return the results."""
    results: dict[str, Any] = {}
    steps = blocks()
    if not sources:
        for words in BY_SOURCE:
            steps = [step.replace(words, "") for step in steps]
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
                results["IPv4"] = in_earnest(site, net, 4)
                results["IPv6"] = in_earnest(site, net, 6)
                with tagged(site, net):
                    results["VLAN, IPv4"] = in_earnest(site, net, 4, 21)
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
    parser.add_argument("--without-sources", action="store_true",
                        help="train without the features by source")  # fmt: skip
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    missing = [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]
    missing += [name for name in ("aioquic",) if importlib.util.find_spec(name) is None]
    if missing:
        parser.error(f"expected {', '.join(missing)} to be installed")
    os.environ["PATH"] = PATH
    with contextlib.ExitStack() as stack:
        folder = arguments.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xdp-trial-")))
        else:
            folder.mkdir(parents=True)
        results = trial(folder, arguments.trained, sources=not arguments.without_sources)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
