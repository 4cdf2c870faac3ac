# SPDX-License-Identifier: Apache-2.0
"""Chains of functions, each in a process of its own, as ``n3ic stream functions`` runs them."""

import json
import os
import random
import re
import select
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Event

import pytest

from n3ic.errors import MissingDependencyError, UsageError
from n3ic.exporters.dpdk.application import require_dpdk
from n3ic.exporters.host.exporter import EXPORTER as HOST
from n3ic.exporters.host.flows import run_flow_exec
from n3ic.kernel.prediction import predict
from n3ic.meter.capture import Capture
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.meter.standard import standard_spec
from n3ic.meter.verdicts import features_of
from n3ic.systems.stream.functions.chain import ChainFunction, FunctionChain, read_chain
from n3ic.systems.stream.functions.process import READY
from n3ic.systems.stream.functions.supervisor import ChainSupervisor, ask
from n3ic.targets.fuzz_traffic import fuzz_frames, pcap
from tests.support.bursts import in_bursts
from tests.support.command_line import N3IC
from tests.support.metered_models import metered_network

TIMEOUT_S = 120
SMALL = "small.py:Small"
SPEC = replace(standard_spec(packets=4), windows=())
CHAIN = """
ports = ["net_pcap0,rx_pcap=in.pcap", "net_pcap1,tx_pcap=out.pcap"]
receive = ["meter", "recorder"]
until_end = true

[[function]]
name = "meter"
use = "meter"
routes = ["waiting"]
[function.options]
model = "model.safetensors"
out = "verdicts.jsonl"
verdicts = { a = "drop", undecided = "waiting" }

[[function]]
name = "waiting"
use = "recorder"
options = { out = "waiting.pcap" }

[[function]]
name = "recorder"
use = "recorder"
next = "half"
options = { out = "seen.pcap" }

[[function]]
name = "half"
use = "half.py:Half"
next = "net_pcap1"
routes = ["count"]

[[function]]
name = "count"
use = "count"
options = { out = "count.json" }
"""
HALF = """
import numpy as np
from n3ic.systems.stream.functions.packets import DROP, PASS, PacketFunction


class Half(PacketFunction):
    def on_batch(self, view):
        third = (view.captured % 3).astype(int)
        return np.choose(third, [PASS, DROP, self.route("count")])
"""
FALLING = """
import os, signal
from n3ic.systems.stream.functions.packets import PacketFunction


class Falling(PacketFunction):
    def __init__(self, *words):
        super().__init__(*words)
        with open("starts", "a") as file:
            file.write("x")
        self.left = self.options["batches"]

    def on_batch(self, view):
        self.left -= 1
        if self.left == 0:
            if self.options["by"] == "hang":
                signal.pause()
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def dpdk():
    try:
        require_dpdk()
    except MissingDependencyError as error:
        pytest.skip(str(error))


def traffic(path, count, seed=5):
    r = random.Random(seed)
    frames = [(data, len(data), t) for data, _, t in fuzz_frames(r, count, [0, 0, 1, 7, 60])]
    frames = [f for f in frames if 0 < len(f[0]) <= 2048]
    path.write_bytes(pcap(LINK_ETHERNET, frames, 1000, "<"))
    return frames


def verdicts_of_packets(model, frames):
    """The verdict on each frame's flow when it was counted, by the reference of bursts."""

    def verdicts_of(records):
        if not len(records):
            return []
        return 1 + model.verdicts(predict(model, model.encode(features_of(records, SPEC))).scores)

    _, _, verdicts = in_bursts(SPEC, frames, iter(lambda: 1, 0), verdicts_of)
    names = ("undecided", *model.classes)
    return [v if v == "aside" else names[v] for v in verdicts]


def packets_of(path):
    with Capture(path) as opened:
        return [data for data, _, _ in opened.packets()]


def status_of(done):
    return json.loads(done.stdout)


# --- what a chain's file says ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('use = "count"', "", "function[4].use: expected text"),
        ("until_end = true", "until_end = 1", "until_end: expected true or false"),
        ("until_end = true", "until_ende = true", "until_ende: unknown key"),
        ('next = "half"', 'next = "hals"', "no function or port 'hals'; did you mean 'half'"),
        ('next = "net_pcap1"', 'next = "recorder"', "packets of recorder come back to it"),
        ('name = "half"', 'name = "Half"', "function 'Half': a name is"),
        ('name = "half"', 'name = "count"', "count is named twice"),
        ("net_pcap1,tx", "net_pcap1:tx", "expected a device such as"),
        ('name = "count"', 'name = "count"\ntickets = 1', "count: tickets: expected 64 to"),
        ('["meter", "recorder"]', "[]", "receive: expected 1 to"),
        ("receive", "= receive", "Invalid"),
        ("until_end", 'share = ["meter"]\nuntil_end', "share: expected 2 to"),
        ("until_end", 'share = ["meter", "half"]\nuntil_end', "share: half is not in receive"),
        ("until_end", 'share_by = "port"\nuntil_end', "share_by: expected"),
    ],
)
def test_a_wrong_chain_is_explained(old, new, message, tmp_path):
    path = tmp_path / "chain.toml"
    path.write_text(CHAIN)
    read_chain(path)
    path.write_text(CHAIN.replace(old, new))
    with pytest.raises(UsageError, match=r"chain\.toml: ") as error:
        read_chain(path)
    assert message in str(error.value)


def test_the_chains_of_the_page_are_chains(repository, tmp_path):
    page = (repository / "docs/how-to/stream-functions.md").read_text()
    blocks = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    used = set()
    for block in blocks:
        (tmp_path / "chain.toml").write_text(block)
        used |= {f.use for f in read_chain(tmp_path / "chain.toml").function}
    assert len(blocks) == 3 and {"meter", "messages", "second-stage"} <= used <= {*READY, SMALL}
    assert all(f"| `{name}` |" in page for name in READY)


def test_status_without_running_functions_is_an_error(n3ic):
    assert "no functions answer" in n3ic("stream functions status --socket here", expect=2).stderr


def test_a_class_that_is_not_there_is_refused_before_anything_runs(n3ic, tmp_path, dpdk):
    (tmp_path / "half.py").write_text("Half = 1\n")
    (tmp_path / "chain.toml").write_text(CHAIN)
    error = n3ic("stream functions run chain.toml --socket here", expect=2).stderr
    assert "expected a subclass of PacketFunction named Half" in error
    assert not (tmp_path / "here").exists()


# --- chains that run ---------------------------------------------------------------------------


@pytest.mark.slow
def test_verdicts_are_those_of_flow_exec_and_packets_go_where_functions_say(n3ic, tmp_path, dpdk):
    model = metered_network(SPEC, 25, classes=("a", "b", "d"), extremes=False)
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "host").mkdir()
    HOST.write(model, {}, tmp_path / "host")
    stamped = traffic(tmp_path / "in.pcap", 3000)
    frames, verdicts = [f[0] for f in stamped], verdicts_of_packets(model, stamped)
    (tmp_path / "half.py").write_text(HALF)
    (tmp_path / "chain.toml").write_text(CHAIN)
    status = status_of(n3ic("stream functions run chain.toml --socket here --json"))
    expected = run_flow_exec(tmp_path / "host", model, tmp_path / "in.pcap").flows
    lines = (tmp_path / "verdicts.jsonl").read_text().splitlines()
    outputs = [json.loads(line) for line in lines]
    assert len(outputs) == len(expected) > 300
    for mine, theirs in zip(outputs, expected, strict=True):
        names = ("source", "source_port", "destination", "destination_port", "protocol")
        names += ("first_us", "last_us", "packets", "decided", "verdict", "margin")
        cells = [str(v) for v in (*(mine[n] for n in names), *mine["scores"])]
        assert cells == [*theirs[1 : 1 + len(cells)]]
    assert packets_of(tmp_path / "seen.pcap") == frames
    assert packets_of(tmp_path / "out.pcap") == [f for f in frames if len(f) % 3 == 0]
    waiting = [f for f, v in zip(frames, verdicts, strict=True) if v == "undecided"]
    assert packets_of(tmp_path / "waiting.pcap") == waiting and 100 < len(waiting) < len(frames)
    counted = json.loads((tmp_path / "count.json").read_text())
    assert counted["packets"] == sum(len(f) % 3 == 2 for f in frames)
    balance = status["balance"]
    assert status["received"] == len(frames) and status["copies"] == 2 * len(frames)
    by_half, by_meter = sum(len(f) % 3 == 1 for f in frames), verdicts.count("a")
    assert balance["dropped"] == by_half + by_meter and by_meter > 10
    assert balance["ended"] == len(frames) - by_meter + counted["packets"]
    assert not balance["unaccounted"]
    assert status["buffers"]["free"] == status["buffers"]["all"]


SHARED = """
ports = ["net_pcap0,rx_pcap=in.pcap"]
receive = ["all", "one", "two", "three"]
share = ["one", "two", "three"]
until_end = true
"""
METER = """
[[function]]
name = "{name}"
use = "meter"
options = {{ model = "model.safetensors", out = "{name}.jsonl" }}
"""


@pytest.mark.slow
@pytest.mark.parametrize("by", ["five-tuple", "host-pair", "source-host"])
def test_functions_that_share_get_each_flow_whole(n3ic, tmp_path, dpdk, by):
    """Split flows would have other times, packets and scores; fragments go with their first."""
    spec = SPEC if by == "five-tuple" else replace(SPEC, key=by, ends=())
    metered_network(spec, 25, extremes=False).save(tmp_path / "model.safetensors")
    frames = traffic(tmp_path / "in.pcap", 4000, seed=6)
    names = ("all", "one", "two", "three")
    text = SHARED + f'share_by = "{by}"\n' + "".join(METER.format(name=n) for n in names)
    (tmp_path / "chain.toml").write_text(text)
    status = status_of(n3ic("stream functions run chain.toml --socket here --json"))
    lines = {}
    for name in names:
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        # Whether a flow ends idle or at the end depends on the packets of others.
        lines[name] = sorted(json.dumps({**row, "decided": ""}) for row in rows)
    shares = [lines[name] for name in names[1:]]
    assert sorted(line for share in shares for line in share) == lines["all"]
    assert min(map(len, shares)) >= 5
    given = {f["name"]: f["given"] for f in status["functions"]}
    assert given["all"] == sum(given[name] for name in names[1:]) == len(frames)
    assert not status["balance"]["unaccounted"]


NULL = """
ports = ["net_null0,size=60"]
receive = ["one", "count"]
until_end = {until_end}

[[function]]
name = "one"
use = "{use}"
restarts = {restarts}
hang_s = {hang_s}
options = {options}

[[function]]
name = "count"
use = "count"
options = {{ out = "count.json" }}
"""


@contextmanager
def running(folder, **values):
    """A chain that runs on endless packets, and what asks it; it is ended by the caller."""
    defaults = {"use": "count", "restarts": 0, "hang_s": 60.0, "options": "{}"}
    settings = defaults | {"until_end": "false"} | values
    (folder / "chain.toml").write_text(NULL.format(**settings))
    words = [*N3IC, "stream", "functions", "run", "chain.toml", "--socket", "here", "--json"]
    with subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            for line in process.stderr:
                if "all functions are attached" in line:
                    break
            yield process
        finally:
            process.kill()


def wait_until(folder, true):
    """Ask for the status until something holds, and return it."""
    for _ in range(20 * TIMEOUT_S):
        status = ask(folder / "here", "status")["status"]
        if true(*status["functions"]):
            return status
        Event().wait(0.05)
    pytest.fail(f"it never came to that: {status}")


def ended(process, folder, code=0):
    ask(folder / "here", "end")
    out, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code and not (folder / "here").exists(), errors
    status = json.loads(out)
    assert status["balance"]["unaccounted"] == status["balance"]["in_functions"] == 0
    assert status["buffers"]["free"] == status["buffers"]["all"]
    return status, errors


FAILING = """
from n3ic.errors import DataError
from n3ic.systems.stream.functions.packets import PacketFunction
from words import MESSAGE


class Failing(PacketFunction):
    def on_batch(self, view):
        return None

    def on_end(self):
        raise DataError(MESSAGE)
"""


@pytest.mark.slow
def test_a_function_that_cannot_finish_is_a_failure(n3ic, tmp_path, dpdk):
    """It finds modules beside its file, and none of them hides one of Python's or n3ic itself."""
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "words.py").write_text("MESSAGE = 'the disk is full'")
    (tmp_path / "queue.py").write_text("raise RuntimeError('not the queue of Python')")
    (tmp_path / "n3ic").mkdir()
    with running(tmp_path, use="failing.py:Failing") as process:
        _, errors = ended(process, tmp_path, code=1)
    assert "function one: the disk is full" in errors
    assert re.search(r"error: function one ended \d+: [\d,]+ packets were lost with it", errors)


OWN_METER = """
from n3ic.systems.stream.functions.metering import MeterFunction


class Own(MeterFunction):
    pass
"""


@pytest.mark.parametrize("use", ["meter", "own.py:Own", "count"])
def test_cut_frames_are_not_metered(use, tmp_path, request):
    if use == "count":  # which goes on to start the manager
        request.getfixturevalue("dpdk")
    frames = [(bytes(60), 60, 10), (bytes(96), 400, 20)]
    (tmp_path / "in.pcap").write_bytes(pcap(LINK_ETHERNET, frames, 1000, "<"))
    if use == "own.py:Own":
        (tmp_path / "own.py").write_text(OWN_METER)
        use = f"{tmp_path}/{use}"
    chain = FunctionChain(
        (f"net_pcap0,rx_pcap={tmp_path / 'in.pcap'}",), ("one",), (ChainFunction("one", use),)
    )
    supervisor = ChainSupervisor(chain, tmp_path / "nowhere" / "here", print)
    expected = r"in.pcap: frame 2 is cut: 96 of 400 bytes" if use != "count" else "nowhere"
    with pytest.raises(UsageError, match=expected):
        supervisor.run()


@pytest.mark.slow
@pytest.mark.parametrize(("by", "why"), [("kill", "died"), ("hang", "hung")])
def test_a_function_that_falls_is_started_again_and_costs_its_own_packets(by, why, tmp_path, dpdk):
    """Only one that hangs has a time to do so; meanwhile the manager waits, and does not flood."""
    (tmp_path / "falling.py").write_text(FALLING)
    fall = {
        "use": "falling.py:Falling",
        "restarts": 1,
        "options": f'{{ batches = 2, by = "{by}" }}',
        **({"hang_s": 5.0, "until_end": "true"} if by == "hang" else {}),
    }
    with running(tmp_path, **fall) as process:
        wait_until(tmp_path, lambda one, _: one["ends"][why] == 2)
        status, errors = ended(process, tmp_path, code=1)
    one, count = status["functions"]
    lost = f"{one['lost'][why]:,} packets were lost with it"
    assert f"function one ended -9: {lost}, and {one['absent']:,} came while it" in errors
    assert (tmp_path / "starts").read_text() == "xx" and one["starts"] == 2
    assert errors.count("function one ended -9\n") == 2
    assert one["lost"][why] + one["passed"] == one["given"] and one["lost"][why] >= 2
    assert one["passed"] > 0 and one["absent"] > 0
    assert count["passed"] == count["given"] and not sum(count["lost"].values())
    assert json.loads((tmp_path / "count.json").read_text())["packets"] == count["passed"]


@pytest.mark.slow
def test_functions_stop_start_and_are_killed_while_packets_flow(n3ic, tmp_path, dpdk):
    def control(what, name="one", expect=0):
        return n3ic(f"stream functions {what} {name} --socket here", expect=expect)

    with running(tmp_path) as process:
        wait_until(tmp_path, lambda one, _: one["passed"] > 1000)
        control("stop")
        stopped = wait_until(tmp_path, lambda one, _: one["state"] == "absent")
        assert stopped["functions"][0]["ends"]["stopped"] == 1
        assert not sum(stopped["functions"][0]["lost"].values())
        control("start")
        before = wait_until(tmp_path, lambda one, _: one["state"] == "running")
        assert "runs already" in control("start", expect=2).stderr
        wait_until(tmp_path, lambda one, _: one["passed"] > before["functions"][0]["passed"])
        control("kill")
        wait_until(tmp_path, lambda one, _: one["ends"]["died"] == 1)
        assert "no function 'two'" in control("kill", "two", expect=2).stderr
        status_report = json.loads(n3ic("stream functions status --socket here --json").stdout)
        assert (
            status_report["functions"][0]["state"] == "absent"
            and status_report["phase"] == "receiving"
        )
        status, _ = ended(process, tmp_path)
    one, count = status["functions"]
    assert one["passed"] + sum(one["lost"].values()) == one["given"]
    assert count["passed"] == count["given"]


@pytest.mark.slow
def test_an_interrupt_lets_functions_finish(tmp_path, dpdk):
    with running(tmp_path) as process:
        wait_until(tmp_path, lambda *both: all(f["passed"] for f in both))
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=TIMEOUT_S)
    status = json.loads(out)
    assert process.returncode == 130 and "functions finish" in errors
    assert all(f["ends"]["stopped"] == 1 for f in status["functions"])
    assert status["balance"]["unaccounted"] == 0


@pytest.mark.slow
def test_no_process_is_left_when_the_supervisor_is_killed(tmp_path, dpdk, monkeypatch, request):
    own = tempfile.TemporaryDirectory(prefix="n3", dir="/tmp")
    request.addfinalizer(own.cleanup)
    monkeypatch.setenv("TMPDIR", own.name)  # its folder is left there
    with running(tmp_path) as process:
        status = wait_until(tmp_path, lambda *both: all(f["passed"] for f in both))
        process.kill()
    for pid in (f["pid"] for f in status["functions"]):
        with suppress(ProcessLookupError):  # it may have ended before
            handle = os.pidfd_open(pid)
            assert select.select([handle], [], [], TIMEOUT_S)[0], "a function runs on"
            os.close(handle)
    with running(tmp_path) as process:  # the socket that was left is replaced
        ended(process, tmp_path)
