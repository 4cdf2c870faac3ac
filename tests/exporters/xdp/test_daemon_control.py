# SPDX-License-Identifier: Apache-2.0
"""Commands on a program that n3icd loaded: those of n3ic xdp, and those of n3icd itself."""

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from n3ic.errors import ExportError, UsageError
from n3ic.exporters.xdp import layout, libbpf
from n3ic.exporters.xdp.packing import pack, repack, unpack
from n3ic.exporters.xdp.plan import Choices, plan
from n3ic.exporters.xdp.verdict_lists import Limits
from n3ic.model.random_models import random_model
from n3ic.systems.xdp.deployment import exported, put_file, put_verdict
from n3ic.systems.xdp.program_record import Interface
from n3ic.systems.xdp.status import status
from tests.support.n3icd import (
    CLASSES,
    N3IC,
    WAIT_S,
    Daemon,
    decided,
    flows,
    frame,
    free_port,
    n3ic,
    repacked,
    send,
)
from tests.support.wires import ip


@pytest.fixture
def running(daemon, tmp_path, monkeypatch):
    """A function that starts an n3icd which n3ic xdp finds."""
    monkeypatch.setenv("N3IC_RUN", str(tmp_path))
    return lambda *of, **settings: daemon(*of, **settings).start()


def again(model, seed=5, **given):
    """Another network of the same structure."""
    weights = random_model(model.shape, np.random.default_rng(seed), extremes=False)
    bits = np.random.default_rng(seed).random((100, model.input.n_bits)) < 0.3
    given = {"input": model.input.with_rates(bits), "hidden": weights.hidden, **given}
    return replace(model, name=f"net {seed}", output=weights.output, **given)


def saved(model, path):
    model.save(path)
    return path


def test_status_is_what_n3icd_tells(running, veth):
    one = running()
    reader = one.reader()
    send(veth[1], [*flows(range(1000, 1020)), b"\xff" * 60])
    reader.lines(20)
    state = json.loads(n3ic("status", veth[0], "--json"))
    people = n3ic("status", veth[0])
    assert (state["packets"], state["started"], state["ends"]) == (81, 20, {"packets": 20})
    assert state["aside"]["not IP"] == 1
    assert state["slots"]["0"]["model"] == 'net "0"'
    assert sum(state["slots"]["0"]["classes"].values()) == 20
    assert set(state["slots"]["0"]["classes"]) == set(CLASSES)
    assert "packets 81 " in people
    n3ic("unload", veth[0])
    assert one.wait() == 0


def test_status_tells_what_n3icd_lost(running, veth):
    """Flows that a sink did not take are shown, and an alarm."""
    closed = free_port(socket.SOCK_DGRAM)
    one = running(ipfix=f"127.0.0.1:{closed}")
    reader = one.reader()
    for i in range(3):  # a datagram that nobody takes is an error of the next one
        send(veth[1], [*flows(range(1000 * i, 1000 * i + 20)), b"\xff" * 60])
        reader.lines(20)
    interface = Interface.named(veth[0])
    state = status(interface)
    assert (state.packets, state.started, state.ends) == (243, 60, {"packets": 60})
    assert state.losses["ipfix_lost"] >= 20
    assert sum(state.losses.values()) == state.losses["ipfix_lost"]
    assert f"flows that were not sent as IPFIX {state.losses['ipfix_lost']}" in n3ic(
        "status", veth[0]
    )
    assert list(state.alarms) == ["lost"] and "came too fast for n3icd" in state.alarms["lost"]
    one.end(signal.SIGKILL)
    with pytest.raises(UsageError, match=f"not running; systemctl start n3icd@{veth[0]} starts"):
        status(interface)


def test_verdicts_of_the_operator_hold(running, veth):
    one = running()
    reader = one.reader()
    n3ic("block", veth[0], "192.0.2.1", "--ttl", 600)
    n3ic("allow", veth[0], "198.51.100.0/24")
    send(veth[1], flows([1000]) + [frame(9, source=3)] * 4)
    assert reader.line()["source"] == "192.0.2.3"
    listing = json.loads(n3ic("list", veth[0], "--json"))
    assert [(e["target"], e["packets"]) for e in listing["listed"]] == [("192.0.2.1", 4)]
    assert [e["target"] for e in listing["allowed"]] == ["198.51.100.0/24"]
    one.end(signal.SIGKILL)
    n3icd(one, "unblock", "192.0.2.1")  # while it is gone
    one.start()
    reader = one.reader()
    send(veth[1], flows([2000]))
    assert reader.line()["source_port"] == 2000
    n3ic("allow", veth[0], "198.51.100.0/24", "--remove")
    assert json.loads(n3ic("list", veth[0], "--json")) == {
        "allowed": [], "listed": [], "decided": []
    }  # fmt: skip
    assert one.end() == 0


@pytest.mark.slow
def test_what_a_dry_run_decided_is_not_in_force_in_earnest(
    running, veth, daemon_model, built, tmp_path
):
    """What the operator blocked stays, and so does what was decided in earnest."""
    policies = [f"{name}=block:host,ttl=600,times=2" for name in CLASSES]
    flow, path = "192.0.2.2:53-192.0.2.9:7/udp", tmp_path / "n3icd.pack"

    def hosts(*numbers):
        send(veth[1], [f for n in numbers for f in [frame(next(ports), source=n)] * 4])
        for _ in numbers:
            reader.line()

    def lists():
        listing = json.loads(n3ic("list", veth[0], "--json"))
        return [{one["target"] for one in listing[name]} for name in ("decided", "listed")]

    def reload(**given):
        repacked(built, daemon_model, path, policies=policies, limits=Limits(**given))
        one.process.send_signal(signal.SIGHUP)
        one.expect("is loaded")

    ports = itertools.count(1000)
    repacked(built, daemon_model, path, policies=policies, limits=Limits(dry_run=True))
    one = running(pack=path)
    reader = one.reader()
    n3ic("block", veth[0], flow)
    hosts(11, 12, 11, 12, 13)
    assert lists() == [{"192.0.2.11", "192.0.2.12"}, {flow}]
    reload(dry_run=True)  # what is changed is looked at anew
    assert lists() == [set(), {flow}]
    hosts(11, 12, 11, 13)
    assert lists() == [{"192.0.2.11"}, {flow}]
    reload()
    assert lists() == [set(), {flow}]
    hosts(11, 13)
    assert lists() == [set(), {flow}]
    hosts(11)
    assert lists() == [{"192.0.2.11"}, {flow}]
    reload(max_blocked=9)
    assert lists() == [{"192.0.2.11"}, {flow}]
    assert one.end() == 0


@pytest.mark.slow
def test_an_update_holds_over_a_kill_under_traffic(running, veth, daemon_model, built, tmp_path):
    """No flow is lost, the new model decides, and verdicts of before go on."""
    path = tmp_path / "n3icd.pack"
    chosen = Choices(limits=Limits(new_flows=0), policies=(f"{CLASSES[1]}=block:flow,ttl=600",))
    path.write_bytes(pack(built, plan(exported(built)[0], "buckets", chosen)))
    flow_file = tmp_path / "flows.json"
    one = running(pack=path, json=flow_file)
    second = again(daemon_model)
    n3ic("block", veth[0], "192.0.2.9", "--ttl", 600)
    ports: list[int] = []
    enough = threading.Event()

    def count():
        return flow_file.read_bytes().count(b"\n")

    def lines():
        return [json.loads(line) for line in flow_file.read_text().split("\n")[:-1]]

    def traffic():
        """Send on, but only so far ahead of n3icd as the ring of events has room for."""
        while not enough.is_set():
            if len(ports) - count() < 500:
                ports.extend(some := range(1000 + len(ports), 1050 + len(ports)))
                send(veth[1], flows(some))

    with ThreadPoolExecutor(1) as pool:
        sender = pool.submit(traffic)
        while count() < 50:
            assert one.process.poll() is None
        out = n3ic("update", veth[0], saved(second, tmp_path / "second.n3ic"))
        assert second.digest[:12] in out
        for end in range(2):
            seen = count()
            while count() < seen + 700:
                assert one.process.poll() is None
            if end:
                enough.set()
            else:
                one.end(signal.SIGKILL)
                one.start()
        sender.result()
    while len({flow["source_port"] for flow in lines()}) < len(ports):
        assert one.process.poll() is None
    records = lines()
    models = [flow["model"] for flow in records]
    assert set(models) == {daemon_model.digest[:16], second.digest[:16]}
    assert models[-1] == second.digest[:16]
    assert len(records) <= len(ports) + 1
    now = json.loads(n3ic("status", veth[0], "--json"))
    assert (now["started"], now["slots"]["0"]["digest"]) == (len(ports), second.digest)
    assert now["verdicts"] > 0
    assert "192.0.2.9" in n3ic("list", veth[0])
    # A hangup, as after the rotation of a log, keeps the update; another pack ends it.
    one.process.send_signal(signal.SIGHUP)
    one.expect("is loaded")
    assert status(Interface.named(veth[0])).slots[0].digest == second.digest
    third = again(daemon_model, 7)
    path.write_bytes(repack(path.read_bytes(), 0, third))
    one.process.send_signal(signal.SIGHUP)
    one.expect("is loaded")
    assert status(Interface.named(veth[0])).slots[0].digest == third.digest
    assert list((tmp_path / "updates").iterdir()) == []
    assert one.end() == 0


def test_updates_that_cannot_be(running, veth, daemon_model, tmp_path):
    one = running()
    weights = random_model((daemon_model.input.n_bits, 24, 3), np.random.default_rng(0))
    larger = replace(daemon_model, hidden=weights.hidden, output=weights.output)
    other = saved(larger, tmp_path / "other.n3ic")
    with pytest.raises(ExportError, match="n3icd takes networks of its program's structure"):
        n3ic("update", veth[0], other)
    one.end(signal.SIGKILL)
    second = saved(again(daemon_model), tmp_path / "second.n3ic")
    with pytest.raises(UsageError, match="n3icd is not running"):
        n3ic("update", veth[0], second)
    (tmp_path / "updates").write_text("no folder")
    one.start()
    with pytest.raises(UsageError, match="updates"):
        n3ic("update", veth[0], second)
    assert status(Interface.named(veth[0])).slots[0].digest == daemon_model.digest
    assert one.end() == 0


def test_a_damaged_update_on_the_disk_is_left_out(running, veth, daemon_model, tmp_path):
    one = running()
    n3ic("update", veth[0], saved(again(daemon_model), tmp_path / "second.n3ic"))
    assert one.end() == 0
    (update_file,) = (tmp_path / "updates").iterdir()
    update_file.write_bytes(update_file.read_bytes()[:-40])
    one.start()
    assert any("is loaded in its place" in line for line in one.log)
    assert status(Interface.named(veth[0])).slots[0].digest == daemon_model.digest
    assert one.end() == 0


@pytest.mark.first_case
@pytest.mark.parametrize("alive", [True, False])
def test_unload_ends_the_daemon(running, veth, pins, tmp_path, alive):
    one = running()
    if not alive:
        one.end(signal.SIGKILL)
    n3ic("unload", veth[0])
    if alive:
        assert one.wait() == 0
    assert libbpf.query(socket.if_nametoindex(veth[0])) is None
    assert not (pins / "n3ic" / veth[0]).exists()
    assert list((tmp_path / "xdp").iterdir()) == []
    with pytest.raises(UsageError, match="n3ic has loaded nothing there"):
        n3ic("status", veth[0])


def test_load_and_watch_say_whose_the_program_is(running, veth, built, tmp_path):
    one = running()
    with pytest.raises(UsageError, match="has loaded program"):
        n3ic("load", veth[0], built)
    one.end(signal.SIGKILL)
    with pytest.raises(UsageError, match="another XDP program is attached"):
        n3ic("load", veth[0], built)
    with pytest.raises(UsageError, match="n3icd is not running"):
        n3ic("watch", veth[0], "--seconds", 1)
    shutil.rmtree(tmp_path / "xdp")
    with pytest.raises(UsageError, match=r"loaded nothing there.*records = in"):
        n3ic("status", veth[0])


# --- requests ------------------------------------------------------------------------------------


def asked(one, data):
    """What n3icd answers to the bytes."""
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(WAIT_S)
        control.connect(str(one.settings["control"]))
        with suppress(BrokenPipeError, ConnectionResetError):  # it may have answered already
            control.sendall(data)
        return control.makefile("rb").read()


HOSTILE = (
    b"\n",
    b"quit\n",
    b"unload \n",
    b"status 1\n",
    b"list \n",
    b"put 1 0\n",
    b"put 1 0 0\n",
    b"put 10 0 12\n192.0.2.1 -\n",
    b"put 0 0 12\n192.0.2.1 -\n",
    b"put 3 1 12\n192.0.2.1 -\n",
    b"put 1 -1 12\n192.0.2.1 -\n",
    b"put 1 0 10\n192.0.2.1\n",
    b"put 1 0 13\n192.0.2.1 -1\n",
    b"put 1 0 14\n192.0.2.1 nan\n",
    b"put 1 0 24\n192.0.2.1 -\n192.0.2.x -\n",
    b"put 1 0 12\n0.0.0.0/0 -\n",
    b"remove allowed\n",
    b"remove all 192.0.2.1\n",
    b"remove blocked nobody\n",
    b"status\nstatus\n",
    b"unload\0\n",
    b"update\n",
    b"update \n",
    b"update - \n",
    b"update - 0\n",
    b"update - -1\n",
    b"update - 99999999999\n",
    b"update - 4294967297\n",
    b"update - 67108865\n",
    b"update 123456789 5\nhello",
    b"update XYZ 5\nhello",
    b"update -  5\nhello",
    b"update - 5 5\nhello",
    b"update - 5\nhello, world",
    b"update - 5\nhello",
    b"update - 12\nn3ic-pack 2\n",
    b"update 00000000 5\nhello",
    b"unload\nunload\n",
    b"x" * 100_000,
    b"\0" * 5000,
)


def test_hostile_requests_change_nothing(running, veth, daemon_model):
    one = running()
    reader = one.reader()
    for i, request in enumerate(HOSTILE):
        answer = asked(one, request)
        assert re.fullmatch(rb"error [^\n]+\n", answer), (request, answer)
        send(veth[1], flows([1000 + i]))
        assert reader.line()["model"] == daemon_model.digest[:16]
    assert one.end() == 0


@pytest.mark.slow
def test_packs_of_requests_are_checked_as_those_of_files(running, veth, built, daemon_model):
    one = running()
    data = repack((built / "daemon" / "n3icd.pack").read_bytes(), 0, again(daemon_model))
    assert asked(one, f"update - {len(data)}\n".encode() + data) == b"ok\n"
    body = data[: data.rindex(b"end ")]

    def send_pack(given, made_of="-"):
        return asked(one, f"update {made_of} {len(given)}\n".encode() + given)

    def summed(given):
        return given + b"end %08x\n" % zlib.crc32(given)

    assert b"its checksum differs" in send_pack(data.replace(b"benign", b"malign"))
    assert b"cut off" in send_pack(data[:-1])
    drift = next(line for line in body.splitlines() if line.startswith(b"drift"))
    words = np.frombuffer(bytes.fromhex(drift.split()[3].decode()), "<u4").copy()
    for at, value in ((0, 0), (0, 2**32 - 1), (1, 1 << 17), (2, 2**31), (4, 2**32 - 1)):
        wrong = words.copy()
        wrong[at] = value
        line = b" ".join([*drift.split()[:3], wrong.tobytes().hex().encode()])
        assert b"no network has these rows" in send_pack(summed(body.replace(drift, line)))
    assert b"made from another pack" in send_pack(data, f"{zlib.crc32(body) ^ 1:08x}")
    assert send_pack(data, f"{zlib.crc32(body):08x}") == b"ok\n"
    assert one.end() == 0


@pytest.mark.slow
def test_many_slow_clients_take_neither_memory_nor_readers(running, veth):
    one = running()
    connections = []
    for i in range(40):  # more than it takes
        control = socket.socket(socket.AF_UNIX)
        control.connect(str(one.settings["control"]))
        control.sendall(b"update - 60000000\n" if i % 2 else b"upd")
        connections.append(control)
    reader = one.reader()
    send(veth[1], flows([1000]))
    assert reader.line()["source_port"] == 1000
    resident = Path(f"/proc/{one.process.pid}/statm").read_text().split()[1]
    assert int(resident) * 4096 < 512 << 20
    for control in connections:
        control.close()
    n3ic("unload", veth[0])
    assert one.wait() == 0


@pytest.fixture
def public():
    """A folder that everybody may enter, unlike those of tests."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def test_others_than_root_may_not_ask(running, veth, public):
    one = running(control=public / "control")
    path = public / "control"
    assert oct(path.stat().st_mode)[-3:] == "600"
    path.chmod(0o777)
    ask = (
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "s.sendall(b'unload\\n'); print(s.makefile().read())"
    )
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c",
         ask, str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "only root may send" in done.stdout, done.stderr
    assert one.process.poll() is None
    assert one.end() == 0


# --- without Python ------------------------------------------------------------------------------


def n3icd(one, command, *words, code=0):
    """Run a command of n3icd beside it, or while it is gone."""
    done = subprocess.run(
        [one.built / "daemon" / "n3icd", command, "-c", one.conf, *map(str, words)],
        capture_output=True, text=True, check=False, timeout=WAIT_S,
    )  # fmt: skip
    assert "Sanitizer" not in done.stderr, done.stderr
    assert "runtime error" not in done.stderr, done.stderr
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


TARGETS = (
    "192.0.2.0/24", "2001:db8::1", "198.51.100.2:80-192.0.2.1:1234/TCP",
    "[2001:db8::2]:5-[2001:db8::1]:7/udp", "192.0.2.1:9-192.0.2.1:8/47",
)  # fmt: skip


@pytest.mark.slow
def test_targets_are_those_of_python(running, veth):
    """What n3ic sends as text is what n3icd reads as typed."""
    one = running()
    for what in TARGETS:
        check_target(one, veth, what)
    assert one.end() == 0


def check_target(one, veth, what):
    out = n3icd(one, "block", "-i", veth[0], what, "--for", 600, "--action", "rate-limit:7")
    by_c = json.loads(n3ic("list", veth[0], "--json"))["listed"]
    assert out.startswith(f"{veth[0]}: {by_c[0]['target']}: rate-limit:7 for 600 s")
    assert (by_c[0]["action"], by_c[0]["argument"], by_c[0]["by"]) == ("rate-limit", 7, "operator")
    assert 590 < by_c[0].pop("left_s") <= 600
    assert abs(by_c[0].pop("since") - time.time()) < 60
    n3ic("unblock", veth[0], what)
    n3ic("block", veth[0], what, "--ttl", 600, "--action", "rate-limit:7")
    by_python = json.loads(n3ic("list", veth[0], "--json"))["listed"]
    assert by_python[0].pop("left_s") and by_python[0].pop("since")
    assert by_python == by_c
    assert by_c[0]["target"] in n3icd(one, "list")
    n3icd(one, "unblock", what)
    assert "nothing is allowed" in n3icd(one, "list")
    n3icd(one, "allow", what)
    assert json.loads(n3ic("list", veth[0], "--json"))["allowed"][0]["left_s"] is None
    n3icd(one, "allow", what, "--remove")
    if "-" in what:
        assert "no flow" not in n3icd(one, "allow", what, "--shared", code=1)
    else:
        assert "shared by many users" in n3icd(one, "allow", what, "--shared")
        assert f"{by_c[0]['target']} " in n3icd(one, "list")
        assert json.loads(n3ic("list", veth[0], "--json"))["allowed"][0]["action"] == "shared"
        n3icd(one, "allow", what, "--remove")
    assert "no verdict" in n3icd(one, "unblock", what, code=1)


@pytest.mark.slow
def test_a_full_list_says_that_it_is_full(running, veth):
    """Both commands name the room and what to do, for entries that hold for ever."""
    one = running()
    for name in ("listed", "allowed"):
        with map_of(veth[0], name) as place:
            fill(place)
            room = place.entries
    for command, way in (("block", "unblock"), ("allow", "allow --remove")):
        message = n3icd(one, command, "192.0.2.1", code=1)
        assert f"full: it has room for {room} entries: remove some with {way}" in message
        with pytest.raises(UsageError, match=f"full: it has room for {room} entries.*{way}"):
            put_verdict(Interface.named(veth[0]), "192.0.2.1", ACTION[command], 0, None)
    assert one.end() == 0


ACTION = {"block": "drop", "allow": "allow"}


def map_of(interface, name):
    """A map of the program on an interface."""
    with libbpf.program_by_id(libbpf.query(socket.if_nametoindex(interface)).program_id) as program:
        return next(bpf_map for bpf_map in program.maps() if bpf_map.name == name)


def fill(place, count=None):
    """Put one address after another into a list, until it has no room if no count is given."""
    keys = np.zeros(count or place.entries, layout.PREFIX)
    keys["bits"], keys["family"] = layout.PREFIX_FAMILY + 32, 4
    numbers = 10 << 24 | np.arange(len(keys), dtype=np.uint32)
    keys["address"][:, :4] = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
    value = np.zeros(1, layout.VERDICT)
    value["until"], value["by"], value["bits"] = layout.FOR_EVER, layout.BY_OPERATOR, 32
    value["action"] = 1
    for key in keys:
        place.update(key.tobytes(), value.tobytes())


def processor_seconds(daemon):
    """Processor time of this process and a daemon, which is the same beside other work."""
    stat = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_a_long_list_is_shown_at_once(running, veth):
    """All entries of a full list, which took most of a minute as text."""
    one = running()
    with map_of(veth[0], "listed") as place:
        fill(place, 65_000)
    start = processor_seconds(one)
    shown = n3ic("list", veth[0]).splitlines()
    text = processor_seconds(one) - start
    listed = json.loads(n3ic("list", veth[0], "--json"))["listed"]
    data = processor_seconds(one) - start - text
    wanted = {f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}" for i in range(65_000)}
    assert {line.split()[0] for line in shown[2:]} == {e["target"] for e in listed} == wanted
    assert len(shown) == 65_002 and len(listed) == 65_000
    assert all(e == listed[0] | {"target": e["target"]} for e in listed)
    assert text < 10 and data < 10, (text, data)
    assert one.end() == 0


def lists(interface):
    return json.loads(n3ic("list", interface, "--json"))


@pytest.mark.slow
def test_a_file_of_hosts_is_blocked_whole_or_not_at_all(running, veth, tmp_path):
    """100,000 entries; the same file again keeps counts, and a wrong line changes nothing."""
    one = running()
    reader = one.reader()
    path, other = tmp_path / "hosts.txt", tmp_path / "others.txt"
    hosts = [f"192.{2 + (i >> 16)}.{i >> 8 & 255}.{i & 255}" for i in range(100_000)]
    path.write_text("# bad hosts\n192.0.2.1\n2001:db8::/32 ; all of it\n" + "\n".join(hosts))
    start = processor_seconds(one)
    assert "100,002 entries: drop; 100,002 are new" in n3ic("block", veth[0], "--file", path)
    assert processor_seconds(one) - start < 10
    send(veth[1], flows([1000]) + [frame(9, source=3)] * 4)
    assert reader.line()["source"] == "192.0.2.3"
    first = without_clock(lists(veth[0]))
    assert {e["target"] for e in first["listed"]} == {"192.0.2.1", "2001:db8::/32", *hosts}
    assert [e["packets"] for e in first["listed"] if e["target"] == "192.0.2.1"] == [4]
    assert "100,002 entries: drop; 0 are new" in n3ic("block", veth[0], "--file", path)
    assert without_clock(lists(veth[0])) == first
    other.write_text("198.51.100.1\n198.51.100.300\n198.51.100.0/33\n")
    with pytest.raises(UsageError, match=r"line 2: '198\.51\.100\.300'.*line 3: .*nothing was"):
        put_file(Interface.named(veth[0]), other, "drop", 0, None)
    room = 1 << 18
    other.write_text("".join(f"11.{i >> 16}.{i >> 8 & 255}.{i & 255}\n" for i in range(room)))
    with pytest.raises(UsageError, match=f"full: it has room for {room} entries"):
        put_file(Interface.named(veth[0]), other, "drop", 0, None)
    assert without_clock(lists(veth[0])) == first
    assert one.end() == 0


def test_files_hold_as_long_as_they_say(running, veth, tmp_path):
    """Entries of other actions are replaced; decisions and sets end when their files say."""
    one = running()
    path = tmp_path / "decisions.json"
    path.write_text(json.dumps([
        {"value": "192.0.2.7", "scope": "Ip", "type": "ban", "duration": "1h"},
        {"value": "192.0.2.8", "scope": "Ip", "type": "ban", "duration": "-3s"},
    ]))  # fmt: skip
    n3ic("block", veth[0], "192.0.2.7", "--action", "rate-limit:5")
    assert "1 entries: drop; 1 are new" in n3ic("block", veth[0], "--file", path)
    (entry,) = lists(veth[0])["listed"]
    assert (entry["target"], entry["action"]) == ("192.0.2.7", "drop")
    assert 3500 < entry["left_s"] <= 3600
    n3ic("block", veth[0], "--file", path, "--ttl", 60)
    assert 50 < lists(veth[0])["listed"][0]["left_s"] <= 60
    path.write_text("create good hash:net family inet\nadd good 192.0.2.0/25 timeout 600\n")
    n3ic("allow", veth[0], "--file", path)
    (entry,) = lists(veth[0])["allowed"]
    assert entry["target"] == "192.0.2.0/25" and 500 < entry["left_s"] <= 600
    assert one.end() == 0


def without_clock(listed):
    """Lists without the time of the day at which their entries were made."""
    return {
        name: [{k: v for k, v in e.items() if k != "since"} for e in entries]
        for name, entries in listed.items()
    }


def by_file(interface):
    """Targets by list that a file set, and those that the operator set."""
    shown = lists(interface)
    return [
        {e["target"] for e in shown[name] if e["by"] == who}
        for who in ("file", "operator")
        for name in ("allowed", "listed")
    ]


@pytest.mark.slow
def test_lists_of_files_last_and_follow_their_files(running, veth, tmp_path):
    """What left a file is removed at SIGHUP; what the operator set stays, as over restarts."""
    allow, block = tmp_path / "allow.txt", tmp_path / "block.txt"
    allow.write_text("198.51.100.0/24\n")
    block.write_text("# hosts\r\n192.0.2.1 # one\r\n2001:db8::/32\r\n\r\n192.0.2.7\n192.0.2.1")
    one = running(allow_file="allow.txt", block_file=block)
    assert any("block.txt: 3 entries are blocked" in line for line in one.log)
    reader = one.reader()
    send(veth[1], flows([1000]) + [frame(9, source=3)] * 4)
    assert reader.line()["source"] == "192.0.2.3"
    n3icd(one, "block", "192.0.2.7")
    n3icd(one, "allow", "192.0.2.9")
    files = [{"198.51.100.0/24"}, {"192.0.2.1", "2001:db8::/32"}]
    assert by_file(veth[0]) == [*files, {"192.0.2.9"}, {"192.0.2.7"}]
    assert re.search(r"by file, since [-\d]+ [:\d]+, for ever, 4 packets", n3icd(one, "list"))
    block.write_text("2001:db8::/32\n192.0.2.8\n")
    reload(one, "2 entries are blocked")
    files[1] = {"2001:db8::/32", "192.0.2.8"}
    assert by_file(veth[0]) == [*files, {"192.0.2.9"}, {"192.0.2.7"}]
    block.write_text("192.0.2.8\n192.0.2.0/33\n")
    reload(one, "block.txt:2: expected an address or a prefix")
    one.expect("the old lists stay")
    assert by_file(veth[0]) == [*files, {"192.0.2.9"}, {"192.0.2.7"}]
    block.write_text("192.0.2.11\n")
    one.end(signal.SIGKILL)
    one.start()
    files[1] = {"192.0.2.11"}
    assert by_file(veth[0]) == [*files, {"192.0.2.9"}, {"192.0.2.7"}]
    n3icd(one, "unload")
    assert one.wait() == 0
    one.start()
    assert by_file(veth[0]) == [*files, set(), set()]
    assert one.end() == 0
    one.conf.write_text(re.sub("block-file.*", "", one.conf.read_text()))
    one.start()  # takes over the program, and the setting is gone
    assert by_file(veth[0]) == [files[0], set(), set(), set()]
    assert one.end() == 0


def reload(one, message):
    one.process.send_signal(signal.SIGHUP)
    one.expect(message)


@pytest.mark.slow
def test_a_wrong_list_file_keeps_the_daemon_from_starting(daemon, veth, tmp_path):
    for text, message in (
        ("192.0.2.1:1-192.0.2.2:2/udp", "list:1: expected an address or a prefix"),
        ("0.0.0.0/0", "list:1: expected an address or a prefix"),
        (None, "list: No such file or directory"),
    ):
        path = tmp_path / "list"
        if text:
            path.write_text(text)
        else:
            path.unlink()
        one = daemon(allow_file=path)
        for options in ((), ("--check",)):
            done = one.run(*options)
            assert done.returncode == 1 and message in done.stderr
        assert libbpf.query(socket.if_nametoindex(veth[0])) is None


@pytest.mark.slow
def test_a_list_file_of_100000_hosts_is_read_while_running(running, veth, tmp_path):
    path = tmp_path / "list"
    path.write_text("192.0.2.1\n")
    one = running(block_file=path)
    n3icd(one, "block", "192.0.2.2")
    hosts = {f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}" for i in range(100_000)}
    path.write_text("\n".join(sorted(hosts)))
    reload(one, "100000 entries are blocked")
    assert by_file(veth[0]) == [set(), hosts, set(), {"192.0.2.2"}]
    path.write_text("".join(f"11.{i >> 16}.{i >> 8 & 255}.{i & 255}\n" for i in range(1 << 18)))
    reload(one, f"full: it has room for {1 << 18} entries")
    assert by_file(veth[0]) == [set(), hosts, set(), {"192.0.2.2"}]
    assert one.end() == 0


MISTYPED = (
    ("192.0.2.300",), ("192.0.2.1/24",), ("192.0.2.0/33",), ("0.0.0.0/0",), ("::/0",),
    ("192.0.2.0/-1",), ("192.0.2.1:1-192.0.2.2:2/",), ("192.0.2.1:1-[::1]:2/tcp",),
    ("192.0.2.1:70000-192.0.2.2:2/tcp",), ("192.0.2.1-192.0.2.2/tcp",), ("x" * 5000,), ("",),
    ("192.0.2.1:1-192.0.2.2:2/256",), ("/-",), ("[",), ("[]:1-[]:2/tcp",),
    ("192.0.2.1", "--for", "0"), ("192.0.2.1", "--for", "nan"), ("192.0.2.1", "--for", "1e10"),
    ("192.0.2.1", "--for", "-5"), ("192.0.2.1", "--for", "9x"),
    ("192.0.2.1", "--action", "rate-limit:0"), ("192.0.2.1", "--action", "socket:1"),
    ("192.0.2.1", "--action", "mark:99999999999"),
)  # fmt: skip


@pytest.mark.slow
def test_what_is_typed_wrong_changes_nothing(running):
    one = running()
    for words in MISTYPED:
        assert n3icd(one, "block", *words, code=1).startswith("n3icd: ")
        assert "nothing is allowed" in n3icd(one, "list")
    assert one.end() == 0


def test_commands_without_python(running, veth, daemon_model, built, tmp_path):
    one = running()
    reader = one.reader()
    n3icd(one, "block", "192.0.2.1", "--for", 600)
    send(veth[1], flows([1000], 10) + [frame(9, source=3)] * 4)
    assert reader.line()["source"] == "192.0.2.3"
    second = again(daemon_model)
    path = tmp_path / "second.pack"
    path.write_bytes(repack((built / "daemon" / "n3icd.pack").read_bytes(), 0, second))
    assert "holds over restarts" in n3icd(one, "update", path)
    send(veth[1], [frame(9, source=4)] * 4)
    assert reader.line()["model"] == second.digest[:16]
    shown = n3icd(one, "status")
    assert "packets 18 " in shown
    assert "started 2," in shown
    assert "blocked 10," in shown
    assert "slot 0: net 5, " in shown
    assert one.end() == 0
    one.start()
    reader = one.reader()
    send(veth[1], [frame(9, source=5)] * 4)
    assert reader.line()["model"] == second.digest[:16]
    assert "unloaded" in n3icd(one, "unload")
    assert one.wait() == 0
    assert libbpf.query(socket.if_nametoindex(veth[0])) is None
    assert "No such file" in n3icd(one, "status", "-i", veth[0], code=1)


def test_wrong_words_show_the_usage(built):
    for words in (
        "list x", "block", "block 1.2.3.4 5.6.7.8", "unblock 1.2.3.4 --for 1",
        "block 1.2.3.4 --for",
        "status --remove", "block --frob 1.2.3.4", "block 1.2.3.4 --for 1 --for 2", "update",
    ):  # fmt: skip
        done = subprocess.run(
            [built / "daemon" / "n3icd", *words.split()],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, "n3icd COMMAND" in done.stderr) == (2, True), done.stderr
    version_line = subprocess.run(
        [built / "daemon" / "n3icd", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert version_line.startswith(f"n3icd {version('n3ic')}, program "), version_line


# --- several models, figures ---------------------------------------------------------------------


@pytest.mark.slow
def test_several_models_of_a_pack_decide(running, veth, daemon_model, built, tmp_path):
    second, third = (saved(again(daemon_model, seed), tmp_path / f"{seed}.n3ic") for seed in (5, 7))
    out = tmp_path / "n3icd.pack"
    n3ic(
        "pack", built, "--out", out, "--model", f"{second}=slot:3", "--model", f"{third}=slot:63",
        "--rule", "udp-port=7=slot:3", "--rule", "udp-port=9=slot:63",
    )  # fmt: skip
    one = running(pack=out)
    reader = one.reader()
    send(veth[1], flows([1000, 7, 9]))
    names = {flow["source_port"]: flow["slot"] for flow in reader.lines(3)}
    assert names == {1000: 0, 7: 3, 9: 63}
    slots = status(Interface.named(veth[0])).slots
    assert {slot: one.model for slot, one in slots.items()} == {
        0: 'net "0"', 3: "net 5", 63: "net 7"
    }  # fmt: skip
    assert all(decided(one) == 1 for one in slots.values())
    n3ic("update", veth[0], saved(again(daemon_model, 9), tmp_path / "9.n3ic"), "--slot", 3)
    one.end(signal.SIGKILL)
    one.start()
    slots = status(Interface.named(veth[0])).slots
    assert {slot: one.model for slot, one in slots.items()} == {
        0: 'net "0"', 3: "net 9", 63: "net 7"
    }  # fmt: skip
    assert one.end() == 0


def test_models_that_do_not_go_together(built, daemon_model, tmp_path):
    second = saved(again(daemon_model), tmp_path / "second.n3ic")
    other = saved(again(daemon_model, classes=("x", "y", "z")), tmp_path / "other.n3ic")
    given = ["pack", built, "--out", tmp_path / "p"]
    with pytest.raises(UsageError, match="a second model of slot 1"):
        n3ic(*given, "--model", f"{second}=slot:1", "--model", f"{other}=slot:1")
    with pytest.raises(UsageError, match="slots are 0 to 63"):
        n3ic(*given, "--model", f"{second}=slot:64")
    with pytest.raises(UsageError, match="its classes are not those of the policies"):
        n3ic(*given, "--model", f"{other}=slot:1", "--policy", "benign=drop")
    assert not (tmp_path / "p").exists()


def test_packs_give_back_what_was_put_in(built, daemon_model):
    data = (built / "daemon" / "n3icd.pack").read_bytes()
    assert unpack(data).compiled == daemon_model
    second = again(daemon_model)
    twice = repack(repack(data, 0, second), 0, daemon_model)
    assert sorted(twice.splitlines()[:-1]) == sorted(data.splitlines()[:-1])
    with pytest.raises(ValueError, match="not a pack"):
        unpack(data[:-1])


@pytest.mark.slow
def test_metrics_are_the_figures_of_status_with_drift_and_alarms(
    running, veth, hasty_model, hasty, tmp_path
):
    path = tmp_path / "n3icd.pack"
    chosen = Choices(
        limits=Limits(max_blocked=2, new_flows=20),
        policies=tuple(f"{name}=block:host,ttl=600" for name in CLASSES),
        models={0: again(hasty_model), 2: again(hasty_model, 7)},
        rules=("prefix=192.0.2.64/26=slot:2",),
    )
    path.write_bytes(pack(hasty, plan(exported(hasty)[0], "buckets", chosen)))
    port = free_port()
    one = running(hasty, pack=path, prometheus=f"127.0.0.1:{port}")
    reader = one.reader()
    hosts = range(40, 80)
    send(veth[1], [frame(53, source=host) for host in hosts for _ in range(4)])
    reader.lines(len(hosts))
    send(veth[1], [frame(port, source=200) for port in range(100, 200)])
    excess = status(Interface.named(veth[0])).excess
    assert 40 < excess <= 80  # 20 at once, and 20 a second while they were sent
    reader.lines(100 - excess)  # idle
    own, samples = one.figures(), {}
    for name, value in own.items():
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', name.partition("{")[2])
        labels = {k: re.sub(r"\\(.)", r"\1", v) for k, v in pairs}
        samples[name.partition("{")[0], frozenset(labels.items())] = value
    served = status(Interface.named(veth[0]))
    names = [(name, dict(labels)) for name, labels in samples]
    drifts = [labels["feature"] for name, labels in names if name == "n3ic_xdp_drift"]
    assert len(drifts) == 2 * len(hasty_model.input.features)
    for (name, labels), value in samples.items():
        of, figure = dict(labels), name.removeprefix("n3ic_xdp_").removesuffix("_total")
        if figure == "verdicts":
            slot = served.slots[int(of["slot"])]
            assert value == {**slot.classes, "shunt": slot.shunted}[of["verdict"]]
        elif figure == "drift":
            moved = {d.feature: d.psi for d in served.slots[int(of["slot"])].drift}
            assert moved[of["feature"]] == pytest.approx(value, rel=1e-9)
        elif figure == "decisions":
            assert value == served.ends.get(of["reason"], 0)
        elif figure == "packets_aside":
            assert value == served.aside[of["reason"]]
        elif figure in ("packets", "flows", "blocked_hosts"):
            assert value == getattr(served, figure)
    alarms = {dict(labels)["alarm"]: v for (name, labels), v in samples.items() if "alarm" in name}
    assert alarms == {"undecided": 0, "full": 0, "excess": 1, "refused": 1, "lost": 0}
    shown = n3icd(one, "status")
    assert f"ALARM {excess} packets of flows that their source began too fast" in shown
    assert f"ALARM {40 + 100 - excess - 2} verdicts were refused" in shown
    assert one.end() == 0


@pytest.fixture
def namespace(kernel):
    """A network namespace with an end of a link in it, and the names of both ends."""
    name, ends = f"ctl{os.getpid()}", (f"ctl{os.getpid()}a", f"ctl{os.getpid()}b")
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"needs the right to make network namespaces: {made.stderr.decode()}")
    try:
        ip("add", ends[1], "type", "veth", "peer", "name", ends[0], "netns", name)
        Path(f"/proc/sys/net/ipv6/conf/{ends[1]}/disable_ipv6").write_text("1")
        ip("set", ends[1], "up")
        subprocess.run(["ip", "-n", name, "link", "set", ends[0], "up"], check=True)
        yield name, ends
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.slow
def test_an_update_in_a_namespace(namespace, built, pins, daemon_model, tmp_path, monkeypatch):
    """Commands reach the n3icd of their own network namespace, and no other one."""
    monkeypatch.setenv("N3IC_RUN", str(tmp_path))
    name, (inner, outer) = namespace
    inside = ["ip", "netns", "exec", name]
    one = Daemon(built, inner, tmp_path, pins)
    alone = one.command
    one.command = lambda *options: [*inside, *alone(*options)]

    def there(*words):
        command = [*inside, *N3IC, "xdp", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    try:
        one.start()
        reader = one.reader()
        there("block", inner, "192.0.2.9", "--ttl", 600)
        send(outer, flows(range(1000, 1010)))
        assert {flow["model"] for flow in reader.lines(10)} == {daemon_model.digest[:16]}
        second = again(daemon_model)
        there("update", inner, saved(second, tmp_path / "second.n3ic"))
        one.end(signal.SIGKILL)
        send(outer, [frame(9, source=9)] * 4)
        one.start()
        reader = one.reader()
        send(outer, flows(range(2000, 2010)))
        assert {flow["model"] for flow in reader.lines(10)} == {second.digest[:16]}
        state = json.loads(there("status", inner, "--json"))
        assert (state["started"], state["blocked"]) == (20, 4)
        with pytest.raises(UsageError, match="no interface"):
            n3ic("status", inner)
        there("unload", inner)
        assert one.wait() == 0
    finally:
        one.remove()
