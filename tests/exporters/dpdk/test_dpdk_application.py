# SPDX-License-Identifier: Apache-2.0
"""The application itself, on vdevs: flows, policies, rings, losses, its end. Needs DPDK."""

import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import DataError, MissingDependencyError, N3icWarning, VerifyError
from n3ic.exporters.dpdk import application, bench
from n3ic.exporters.dpdk.application import PROGRAM, eal_words, require_dpdk
from n3ic.exporters.dpdk.exporter import EXPORTER
from n3ic.exporters.dpdk.exporter import received as received_frames
from n3ic.exporters.host.flows import run_flow_exec
from n3ic.families.spn.random_models import random_spn
from n3ic.families.tables.random_models import random_tables
from n3ic.meter.capture import Capture
from n3ic.meter.compiled import STAMPS
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import MeteredFeature
from n3ic.model.passes import unchanged
from n3ic.targets.bench_tools import write_pcap
from n3ic.targets.fuzz_traffic import fuzz_frames, pcap, pcapng
from n3ic.targets.meter_verification import check_metering
from tests.support.bursts import in_bursts
from tests.support.damaged_captures import damaged_capture
from tests.support.metered_models import counting_network, metered_network, page_schedule

pytestmark = pytest.mark.slow

try:
    require_dpdk()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

TIMEOUT_S = 120
SPEC = replace(standard_spec(packets=4), windows=())  # their flows do not depend on others
MODEL = metered_network(SPEC, 25, classes=("a", "b=c", "d"), extremes=False)
SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
CLASSES = len(MODEL.classes)


@pytest.fixture(scope="session")
def directory(tmp_path_factory):
    out = tmp_path_factory.mktemp("dpdk") / "export"
    out.mkdir()
    EXPORTER.write(MODEL, {}, out)
    return out


@pytest.fixture(scope="session")
def program(directory, tmp_path_factory):
    """The program with the sanitizers; what it does not free is an error."""
    place = tmp_path_factory.mktemp("dpdk") / "build"
    shutil.copytree(directory, place)
    words = ["make", "-j2", f"CFLAGS=-O0 -Werror {SANITIZE}", f"LDFLAGS={SANITIZE}", PROGRAM]
    done = subprocess.run(words, cwd=place, capture_output=True, timeout=300)
    if done.returncode and b"cannot find" in done.stderr:
        pytest.skip("needs the compiler's sanitizer libraries (libasan, libubsan)")
    assert done.returncode == 0, done.stderr.decode()
    return place / PROGRAM


@pytest.fixture(scope="session")
def decisive(tmp_path_factory):
    """The program of a network that calls a flow an attack at some packet, and is unsure later."""
    spec = standard_spec(schedule=page_schedule())
    model = counting_network(spec, [26, 27, 28, -998, -999], bias=(1, 0), shunt=2)
    place = tmp_path_factory.mktemp("dpdk") / "decisive"
    place.mkdir()
    EXPORTER.write(model, {}, place)
    subprocess.run(["make", "-j2", "CFLAGS=-O1", PROGRAM], cwd=place, check=True, timeout=300)
    return place / PROGRAM


@pytest.fixture
def unoptimised(monkeypatch):
    """Builds for what is not about speed; that of the generated captures is as users have it."""
    monkeypatch.setenv("CFLAGS", "-O0")


def run(program, devices, *options, workers=1, code=0):
    words = [f"--vdev={device}" for device in devices]
    done = subprocess.run(
        [program, *eal_words(workers), *words, "--", *map(str, options)],
        capture_output=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    log = done.stderr.decode()
    assert "Sanitizer" not in log and "runtime error" not in log, log
    assert done.returncode == code, log
    return log


def runs(process, stats, true=bool):
    """Wait until the statistics that a program writes are as asked, or it has ended."""
    for _ in range(20 * TIMEOUT_S):
        if process.poll() is not None or (stats.exists() and true(json.loads(stats.read_text()))):
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    pytest.fail("the statistics never came to that")


def some_decided(statistics):
    """Whether packets of decided flows came."""
    return statistics["verdicts"]["undecided"]["packets"] < statistics["received"]


def accounted(statistics):
    """Packets of a port that were received, or dropped before."""
    (port,) = statistics["ports"]
    return statistics["received"] + port["losses"]["packet_socket_dropped"]


def traffic(seed, count=1500):
    """Whole frames, valid and hostile, whose stamps rise."""
    r = random.Random(seed)
    return [(data, len(data), t) for data, _, t in fuzz_frames(r, count, [0, 0, 1, 7, 60])]


def saved(path, frames, tick_ns=1000):
    path.write_bytes(pcap(LINK_ETHERNET, frames, tick_ns, "<"))
    return path


def expected(frames, model=MODEL):
    """The number of the verdict on each frame; classes first, then shunt, undecided, aside."""

    def verdicts_of(records):
        rows = {
            name: records["features"][:, i].astype(np.int64)
            for i, name in enumerate(model.meter.feature_names)
        }
        verdicts = model.verdicts(model.infer(model.encode(rows)).scores) if len(records) else []
        return [1 + (CLASSES if v < 0 else int(v)) for v in verdicts]

    _, _, codes = in_bursts(model.meter, frames, iter(lambda: 1, 0), verdicts_of)
    return [CLASSES + 2 if v == "aside" else v - 1 if v else CLASSES + 1 for v in codes]


def sent(path):
    with Capture(path) as opened:
        return [data for data, _, _ in opened.packets()]


def ethernet(udp):
    """A frame of UDP in IPv4 that may be longer than IPv4's length can say."""
    total_length = 0 if len(udp) > 65_515 else 20 + len(udp)  # 0: the sender's card was to cut it
    ip = struct.pack(">BBHHHBBH", 0x45, 0, total_length, 0, 0, 64, 17, 0) + bytes([10, 0, 0, 1] * 2)
    return bytes(12) + b"\x08\0" + ip + udp


# --- flows -----------------------------------------------------------------------------------


def test_generated_captures_give_the_flows_of_the_reference_meter(directory):
    report = check_metering(EXPORTER, directory, unchanged(MODEL), {}, packets=1500, seed=7)
    assert report.packets == 1500 and report.flows > 300
    assert not report.failures and not report.missing


@pytest.mark.parametrize("draw", [random_tables, random_spn])
@pytest.mark.usefixtures("unoptimised")
def test_other_families_of_the_host_give_the_flows_of_the_reference_meter(draw, tmp_path):
    drawn = draw(np.random.default_rng(2))
    counted = (r.name for r in SPEC.registers if r.field not in ("time", "gap"))
    features = tuple(
        MeteredFeature(*pair) for pair in zip(drawn.input.features, counted, strict=False)
    )
    model = drawn.changed(meter=replace(SPEC, features=features))
    tool = EXPORTER.for_family(model.family)
    tool.write(model, {}, tmp_path)
    report = check_metering(tool, tmp_path, unchanged(model), {}, packets=800, seed=3)
    assert report.packets == 800 and report.flows > 100 and not report.failures, report


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_flows_equal_those_of_flow_exec_with_any_number_of_workers(
    workers, program, directory, tmp_path
):
    capture = saved(tmp_path / "c.pcap", traffic(3))
    out, stats = tmp_path / "flows.csv", tmp_path / "said.json"
    run(program, [f"net_pcap0,rx_pcap={capture}"], "--until-end", "--tap", "--decisions", out,
        "--stats-json", stats, workers=workers)  # fmt: skip
    wanted = run_flow_exec(directory / "host", MODEL, capture)
    rows = application.flow_rows(MODEL, out.read_bytes())
    assert len(rows) > 300
    if workers == 1:
        assert rows == wanted.flows
    assert Counter(row[1:] for row in rows) == Counter(row[1:] for row in wanted.flows)
    statistics = json.loads(stats.read_text())
    roles = [lcore["role"] for lcore in statistics["lcores"]]
    assert roles == ["works"] * workers + ["distributes"] * (workers > 1)
    busy = [lcore["received"] for lcore in statistics["lcores"][:workers]]
    assert min(busy) > 0 and sum(busy) == statistics["received"] == 1500
    assert application._counters(statistics) == dict.fromkeys(STAMPS, 0) | wanted.counters
    assert sum(v["flows"] for v in statistics["verdicts"].values()) == len(rows)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_captures_give_what_flow_exec_gives(seed, program, directory, tmp_path):
    """Of all formats; those whose link is not Ethernet are other packets to a port."""
    r, spec, ran = random.Random(seed), MODEL.meter, 0
    capture, out = tmp_path / "c.pcap", tmp_path / "flows.csv"
    words = [program, *eal_words(1), f"--vdev=net_pcap0,rx_pcap={capture}", "--", "--until-end"]
    while ran < 8:
        capture.write_bytes(damaged_capture(r))
        try:
            with warnings.catch_warnings(), Capture(capture) as opened:
                warnings.simplefilter("ignore", N3icWarning)  # that it ends early
                frames = [(d, n, t // spec.tick_ns) for d, n, t in opened.packets()]
        except DataError:
            frames = []
        if not frames or opened.link != LINK_ETHERNET:
            continue
        ran += 1
        done = subprocess.run([*words, "--decisions", out], capture_output=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr.decode()
        again = tmp_path / "again.pcapng"
        received = [(d, n, max(0, t)) for d, n, t in received_frames(frames, spec)]
        again.write_bytes(pcapng(LINK_ETHERNET, received, spec.tick_ns, "<"))
        rows = application.flow_rows(MODEL, out.read_bytes())
        assert rows == run_flow_exec(directory / "host", MODEL, again).flows


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "worker.c",
            "w->margins[i], w->scores",
            "w->margins[0], w->scores",
            "margin: expected|differ between one",
        ),
        ("worker.c", "p.address_bytes;\n", "p.address_bytes + p.ttl;\n", "differ between one"),
        ("worker.c", "frames[i].length = packets[i]->pkt_len", "frames[i].length = 60", "expected"),
    ],
)
@pytest.mark.usefixtures("unoptimised")
def test_a_change_of_the_application_is_found(file, old, new, message, directory, tmp_path):
    place = tmp_path / "changed"
    shutil.copytree(directory, place)
    text = (place / file).read_text()
    assert old in text
    (place / file).write_text(text.replace(old, new))
    capture = saved(tmp_path / "c.pcap", traffic(5))
    try:
        report = check_metering(
            EXPORTER, place, unchanged(MODEL), {}, packets=400, seed=1, captures=[capture]
        )
    except VerifyError as error:
        assert re.search(message, str(error))
    else:
        assert re.search(message, str(report.failures))


# --- verdicts --------------------------------------------------------------------------------


def test_packets_go_where_the_policy_of_their_flows_verdict_says(program, tmp_path):
    frames = traffic(11)
    capture = saved(tmp_path / "c.pcap", frames)
    verdicts = expected(frames)
    assert {*verdicts} == {0, 1, 2, CLASSES + 1, CLASSES + 2}, Counter(verdicts)
    out = [tmp_path / f"{i}.pcap" for i in range(4)]
    devices = [f"net_pcap0,rx_pcap={capture},tx_pcap={out[0]}"]
    devices += [f"net_pcap{i},tx_pcap={out[i]}" for i in (1, 2, 3)]
    stats = tmp_path / "said.json"
    run(program, devices, "--until-end", "--stats-json", stats, "--policy", "a=drop",
        "--policy", "b=c=interface:net_pcap2",
        "--policy", "aside=ring:left", "--policy", "d=mark:7",
        "--take", "left=net_pcap3")  # fmt: skip

    def of(*numbers):
        return [data for (data, _, _), v in zip(frames, verdicts, strict=True) if v in numbers]

    # The port beside 0 is 1; each order is that of arrival.
    assert [sent(p) for p in out] == [[], of(2, CLASSES + 1), of(1), of(CLASSES + 2)]
    statistics = json.loads(stats.read_text())
    names = [*MODEL.classes, "shunt", "undecided", "aside"]
    counted = {name: v["packets"] for name, v in statistics["verdicts"].items()}
    assert counted == {name: verdicts.count(i) for i, name in enumerate(names)}
    assert sum(statistics["actions"].values()) == len(frames)


@pytest.mark.parametrize("burst_of_flows", [1, 20])
def test_decisions_go_on_and_an_unsure_one_leaves_a_sure_one_in_force(
    decisive, burst_of_flows, tmp_path
):
    """Flows whose 26th packet begins a flood; the decision at their 1,000th is not sure."""
    flows = [struct.pack(">HHHH", 1000 + i, 9, 8, 0) for i in range(burst_of_flows)]
    frames = [(ethernet(udp), 42, 0) for _ in range(1100) for udp in flows]
    capture = saved(tmp_path / "c.pcap", [(d, n, i) for i, (d, n, _) in enumerate(frames)])
    out, stats = tmp_path / "out.pcap", tmp_path / "said.json"
    run(decisive, [f"net_pcap0,rx_pcap={capture},tx_pcap={out}"], "--until-end",
        "--policy", "attack=drop", "--policy", "shunt=pass", "--stats-json", stats)  # fmt: skip
    assert sent(out) == [data for data, _, _ in frames[: 99 * burst_of_flows]]
    verdicts = json.loads(stats.read_text())["verdicts"]
    points = page_schedule()
    honest = sum(point < 26 for point in points)
    attack = sum(26 <= point < 1000 for point in points)
    decided = {"honest": honest, "attack": attack, "shunt": 2}  # at packet 1,000 and at the end
    assert {name: verdicts[name]["flows"] for name in decided} == {
        name: n * burst_of_flows for name, n in decided.items()
    }
    assert verdicts["attack"]["packets"] == 1001 * burst_of_flows
    assert verdicts["shunt"]["packets"] == 0


def test_a_ring_that_nobody_empties_loses_packets_and_says_so(program, tmp_path):
    frames = traffic(2, 3000)
    capture = saved(tmp_path / "c.pcap", frames)
    stats = tmp_path / "said.json"
    text = run(program, [f"net_pcap0,rx_pcap={capture}"], "--until-end", "--stats-json", stats,
               "--policy", "undecided=ring:full", "--policy", "aside=ring:full")  # fmt: skip
    statistics = json.loads(stats.read_text())
    lost = statistics["lcores"][0]["ring_full"]
    assert lost == statistics["actions"]["ring"] - 1023
    assert f"lost here: {lost} (ring_full)" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "x=drop"], "verdicts are the classes, shunt, undecided and aside"),
        (["--policy", "a=cpu:1"], "cpu is an action of the XDP target alone"),
        (["--policy", "a=fly"], "unknown action"),
        (["--policy", "a=drop:1"], "drop takes no argument"),
        (["--policy", "a=mark:4294967296"], "a mark is a number"),
        (["--policy", "a=interface:none"], "none: no port has that name"),
        (["--policy", "shunt=drop"], "the model shunts nothing"),
        (["--take", "x=0"], "expected RING=PORT"),
        (["--mbufs", "7"], "--mbufs 7: expected a number from 1024"),
        (["--packets", "-1"], "--packets -1: expected a number"),
        (["more"], "more: unknown argument"),
        (["--decisions", "/nowhere/x"], "/nowhere/x: No such file"),
    ],
)
def test_a_wrong_command_line_is_explained(options, message, program):
    code = 1 if "--decisions" in options else 2
    words = [program, *eal_words(1), "--vdev=net_null0", "--", *options]
    environment = {"ASAN_OPTIONS": "detect_leaks=0", "PATH": "/usr/bin:/bin"}  # it ends at once
    done = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, env=environment)
    assert done.returncode == code and message in done.stderr.decode(), done.stderr.decode()


# --- its end, and what it loses --------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_frames_that_net_pcap_cuts_are_metered_and_not_sent_on(
    workers, program, directory, tmp_path
):
    """It keeps 16 bits of a frame's size, and says of what is left that it is the whole frame."""
    sizes = [60, 65_535, 80_054, 65_536 + 60, 100, 131_100, 262_144, 5_000]
    large = [
        (ethernet(struct.pack(">HHHH", 7, 9 + i, 0, 0) + bytes(size - 42)), size, i)
        for i, size in enumerate(sizes)
    ]
    usual = [(data, size, time + len(large)) for data, size, time in traffic(3, 200)]
    capture = saved(tmp_path / "c.pcap", large + usual)
    out, stats, decisions = (tmp_path / name for name in ("out.pcap", "said.json", "flows.csv"))
    device = f"net_pcap0,rx_pcap={capture},tx_pcap={out}"
    run(program, [device], "--until-end", "--decisions", decisions, "--stats-json", stats,
        workers=workers)  # fmt: skip
    wanted = run_flow_exec(directory / "host", MODEL, capture).flows
    rows = application.flow_rows(MODEL, decisions.read_bytes())
    assert Counter(row[1:] for row in rows) == Counter(row[1:] for row in wanted)
    statistics = json.loads(stats.read_text())
    lost = sum(lcore["end_not_received"] for lcore in statistics["lcores"])
    assert statistics["received"] == 208 and lost == 3
    with Capture(out) as opened:  # net_pcap writes the length, and so many bytes as it can
        lengths = [length for _, length, _ in opened.packets()]
    assert len(lengths) == 205
    assert sorted(size for size in lengths if size > 4_000) == [5_000, 65_535, 65_596]


def test_an_interrupt_ends_it_with_all_packets_accounted_for(program, tmp_path):
    capture, stats = tmp_path / "c.pcap", tmp_path / "said.json"
    write_pcap(capture, LINK_ETHERNET, bench.connections(64))
    words = [program, *eal_words(1), f"--vdev=net_pcap0,rx_pcap={capture},infinite_rx=1", "--"]
    with subprocess.Popen([*words, "--stats-json", stats], stderr=subprocess.PIPE) as process:
        try:
            runs(process, stats, some_decided)
            process.send_signal(signal.SIGINT)
            text = process.communicate(timeout=TIMEOUT_S)[1].decode()
        finally:
            process.kill()
    assert process.returncode == 0 and "Sanitizer" not in text, text
    statistics = json.loads(stats.read_text())
    assert sum(statistics["actions"].values()) == statistics["received"] > 0
    assert some_decided(statistics)


def test_what_af_packet_loses_is_told_though_its_driver_does_not(program, tmp_path):
    """A veth pair in a namespace of its own; the ring holds less than is sent at once."""
    stats, count = tmp_path / "said.json", 30_000
    name = f"n3d{os.getpid()}"
    words = ["ip", "netns", "exec", name]
    if shutil.which("ip") is None or subprocess.run(["ip", "netns", "add", name]).returncode:
        pytest.skip("needs the right to make network namespaces, and iproute2")
    try:
        for line in (
            "link add dpdk0 type veth peer name dpdk1", "link set dpdk0 up", "link set dpdk1 up"
        ):  # fmt: skip
            subprocess.run(["ip", "-n", name, *line.split()], check=True)
        device = "--vdev=net_af_packet0,iface=dpdk0,framecnt=16,blocksz=4096,framesz=2048"
        command = [*words, program, *eal_words(1), device, "--", "--tap", "--stats-json", stats]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            try:
                runs(process, stats)
                process.send_signal(signal.SIGSTOP)  # else it may be as fast as the sender
                code = (
                    "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); "
                    f"s.bind(('dpdk1', 0)); [s.send(bytes(60)) for _ in range({count})]"
                )
                subprocess.run([*words, "python3", "-c", code], check=True, timeout=TIMEOUT_S)
                process.send_signal(signal.SIGCONT)
                runs(process, stats, lambda statistics: accounted(statistics) >= count)
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=TIMEOUT_S)
            finally:
                process.kill()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
    statistics = json.loads(stats.read_text())
    (port,) = statistics["ports"]
    lost = port["losses"]["packet_socket_dropped"]
    assert lost > 0 and port["losses"]["imissed"] == 0
    # The kernel's own multicast, when the interface came up, may have come, too.
    assert count <= accounted(statistics) <= count + 100
