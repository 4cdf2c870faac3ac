# SPDX-License-Identifier: Apache-2.0
"""A card.toml with packet tasks: planned, exported, verified and changed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from n3ic.cli.main import command_line
from n3ic.errors import CardError
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.systems.card.changes import change_of
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.description import PacketTask
from n3ic.systems.card.export import export_card
from n3ic.systems.card.frames import traffic
from n3ic.systems.card.host.library import CallStatus, CardLibrary
from n3ic.systems.card.host.verify import shape_of
from n3ic.systems.card.netfpga.changes import operations_of
from n3ic.systems.card.netfpga.compile import image_of
from n3ic.systems.card.parser import parse_card, read_card
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.planner import plan_card
from n3ic.systems.card.tasks.counters.task import KIND
from tests.support import small_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")
RULES = """
rules = [
    { action = "allow", source = "10.1.0.0/16" },
    { action = "deny", source = "10.0.0.0/8", source_port = 53 },
    { action = "deny", protocol = 17, destination = "192.168.1.1/32" },
]
"""


def text(target: str, flow: str = '"wall", "net"', uid: str = "udp-port", task: str = "") -> str:
    return f"""
name = "walled"
[device]
target = "{target}"
uid = "{uid}"
[[tasks]]
name = "shared"
kind = "firewall"
{RULES}
[[tenants]]
name = "soc"
[[tenants.tasks]]
name = "wall"
kind = "firewall"
{RULES}
{task}
[[tenants.tasks]]
name = "net"
kind = "network"
model = "net.n3ic"
[[tenants.tasks]]
name = "other"
kind = "network"
model = "net.n3ic"
[[tenants.graphs]]
name = "watch"
uid = 4000
wants = "100000 packets/s"
flow = [{flow}]
[[tenants.graphs]]
name = "plain"
uid = 4001
wants = "100000 packets/s"
flow = ["other"]
[[tenants]]
name = "lab"
[[tenants.graphs]]
name = "walls"
uid = 4002
wants = "1000 packets/s"
flow = ["shared", "theirs"]
[[tenants.tasks]]
name = "theirs"
kind = "network"
model = "net.n3ic"
"""


def plan_of(path: Path) -> CardPlan:
    return plan_card(read_card(path))


def write(tmp_path: Path, target: str, **more: str) -> Path:
    cards.net((24, 8, 2), 1).save(tmp_path / "net.n3ic")
    path = tmp_path / "card.toml"
    path.write_text(text(target, **more))
    return path


@pytest.mark.parametrize("target", ["host", pytest.param("netfpga", marks=pytest.mark.slow)])
def test_a_card_with_firewalls_is_exported_and_checked(target: str, tmp_path: Path) -> None:
    if not shutil.which("cc" if target == "host" else "iverilog"):
        pytest.skip("needs a C compiler or iverilog")
    exported = export_card(plan_of(write(tmp_path, target)), tmp_path / "card")
    assert exported.check is not None
    assert exported.check.inferences >= 3


COUNTERS = '[[tenants.tasks]]\nname = "seen"\nkind = "counters"\n'


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_counts_are_read_on_the_host(tmp_path: Path) -> None:
    plan = plan_of(write(tmp_path, "host", flow='"seen", "wall", "net"', task=COUNTERS))
    export_card(plan, tmp_path / "card", verify=False)
    card = software_card(plan, "host")
    running = CardLibrary(tmp_path / "card", shape_of(card)).open(0)
    seen = [*card.packet_tasks].index("soc/seen")
    reference = KIND.state()
    for n, request in enumerate(r for r in traffic(card, 40) if card.graphs[r.graph].uid == 4000):
        reference.run(bytearray(request.frame))
        assert running.submit(request.frame, n * 10**9) == CallStatus.OK
        running.wait()
    counts = [reference.read(address) for address in range(512)]
    assert len({*counts}) > 2
    assert [running.read_task(seen, address) for address in range(512)] == counts
    assert running.read_task([*card.packet_tasks].index("soc/wall"), 0) == 0  # counts nothing
    assert running.read_task(99, 0) == 0


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_table_changes_on_the_host(tmp_path: Path) -> None:
    path = write(tmp_path, "host")
    plan = plan_of(path)
    export_card(plan, tmp_path / "card", verify=False)
    card = software_card(plan, "host")
    running = CardLibrary(tmp_path / "card", shape_of(card)).open(0)
    (tmp_path / "rules.toml").write_text('default = "deny"\n')
    change = change_of(plan.card, "replace", "soc/wall", tmp_path / "rules.toml")
    (entries,) = change.tables.values()
    number = [*card.packet_tasks].index("soc/wall")
    words = [(i << 4 | at, w) for i, row in entries.items() for at, w in enumerate(row)]
    assert running.set_table(number, words, caller=1) == CallStatus.FOREIGN
    requests = [r for r in traffic(card, 40) if card.graphs[r.graph].uid == 4000]

    def actions() -> list[str]:
        out = []
        for n, request in enumerate(requests):
            assert running.submit(request.frame, n * 10**9) == CallStatus.OK
            running.wait()
            answer = running.next(0)
            assert answer is not None
            out.append(answer.action)
        return out

    before = actions()
    assert {"drop", "forward"} == set(before)
    assert before.count("drop") == sum(r.results[0].verdict == 0xFFFE for r in requests)
    assert running.set_table(number, words) == CallStatus.OK
    assert set(actions()) == {"drop"}


def test_a_task_without_a_table_takes_none(tmp_path: Path) -> None:
    path = write(tmp_path, "host", flow='"seen", "wall", "net"', task=COUNTERS)
    plan = plan_of(path)
    export_card(plan, tmp_path / "card", verify=False)
    card = software_card(plan, "host")
    running = CardLibrary(tmp_path / "card", shape_of(card)).open(0)
    number = [*card.packet_tasks].index("soc/seen")
    assert running.set_table(number, [(0, 1)]) == CallStatus.NO_TABLE
    assert running.set_table(number, []) == CallStatus.OK
    with pytest.raises(CardError, match="'counters' has no table"):
        change_of(plan.card, "replace", "soc/seen", path)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_card_exec_drops_what_a_table_denies(tmp_path: Path) -> None:
    export_card(plan_of(write(tmp_path, "host")), tmp_path / "card", verify=False)
    folder = tmp_path / "card"
    subprocess.run(["make", "-s", "-C", str(folder)], check=True, timeout=120)
    (tmp_path / "t").write_text(
        "".join(f"{i << 4 | w:x} {3 * (w == 8):x}\n" for i in range(32) for w in range(9))
    )
    (tmp_path / "control").write_text(f"table soc/wall {tmp_path / 't'}\ntable soc/none x\n")
    run = [str(folder / "card-exec"), "-c", str(tmp_path / "control")]
    sent = (folder / "frames.pcap").read_bytes()
    done = subprocess.run(run, input=sent, capture_output=True, timeout=60, check=True)
    assert b"table soc/wall: done" in done.stderr
    assert b"table soc/none: no such task" in done.stderr
    plain = subprocess.run(run[:1], input=sent, capture_output=True, timeout=60, check=True)
    assert len(done.stdout) < len(plain.stdout) <= len(sent)
    shutil.rmtree(folder)


def test_a_table_changes_in_verilog_by_the_write_port(tmp_path: Path) -> None:
    plan = plan_of(write(tmp_path, "netfpga"))
    image = image_of(plan, EXPORTER.options, 200e6)
    (tmp_path / "rules.toml").write_text('default = "deny"\n')
    change = change_of(plan.card, "replace", "soc/wall", tmp_path / "rules.toml")
    operations = operations_of(image, change, 400)
    (place,) = image.places_of("soc/wall")
    assert len(operations) == 32 * 9
    assert {op[0] for op in operations} == {4}
    assert {op[3] for op in operations} == {place[0] << 8 | 0x80 | place[1]}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"uid": "header"}, 'expected uid = "udp-port"'),
        ({"flow": '"net", "wall"'}, "expected packet tasks before them"),
        (
            {"flow": '"wall", { join = "both", branches = [["net"], ["other"]] }'},
            "before branches runs in each",
        ),
        (
            {"flow": '{ join = "both", branches = [["net"], ["wall", "other"]] }'},
            "expected it in the first branch",
        ),
        (
            {"flow": '{ join = "vote", branches = [["wall", "net"], ["other"]] }'},
            "expected 'both'",
        ),
    ],
)
def test_flows_that_a_task_does_not_fit_are_refused(
    more: dict[str, str], message: str, tmp_path: Path
) -> None:
    for target in ("host", "netfpga"):
        with pytest.raises(CardError, match=message):
            plan = plan_of(write(tmp_path, target, **more))
            software_card(plan, target) if target == "host" else image_of(
                plan, EXPORTER.options, 2e8
            )


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ('rules = [{ action = "maybe" }]', "one of allow, deny"),
        ('rules = [{ action = "deny", source = "10.0.0.1/8" }]', "expected IPv4"),
        ('rules = [{ action = "deny", port = 65536 }]', "from 0 to 65535"),
        ('rules = [{ action = "deny", ports = 1 }]', "unknown key 'ports'"),
        ("rules = [" + '{ action = "deny" },' * 32 + "]", "at most 31"),
    ],
)
def test_rules_that_are_none_are_refused(rules: str, message: str) -> None:
    with pytest.raises(CardError, match=f"card.toml:.*{message}"):
        parse_card(text("host").replace(RULES, rules, 1))


def test_p4_refuses_packet_tasks(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="target p4 has no packet task"):
        software_card(plan_of(write(tmp_path, "p4")), "p4")


def test_the_command_takes_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "netfpga")
    words = ["card", "replace", "soc/wall", "rules.toml", "--to", "x.change"]
    (tmp_path / "rules.toml").write_text('default = "maybe"\n')
    export_card(plan_of(tmp_path / "card.toml"), tmp_path / "card", verify=False)
    with pytest.raises(CardError, match=r"rules\.toml:1: 'default': expected one of allow, deny"):
        command_line(words)(words, standalone_mode=False)
    (tmp_path / "rules.toml").write_text('default = "deny"\n')
    command_line(words)(words, standalone_mode=False)
    head = (tmp_path / "x.change").read_text()
    assert "# change replace soc/wall\n" in head
    assert "table of task 0 of region 0: word 0x01f8 = 0x00000003" in head


OTHERS = """
[[tenants.tasks]]
name = "counts"
kind = "counters"
[[tenants.tasks]]
name = "servers"
kind = "balancer"
backends = [
    { address = "10.0.0.1", mac = "02:00:00:00:00:01", weight = 3 },
    { address = "10.0.0.2", mac = "02:00:00:00:00:02" },
]
[[tenants.tasks]]
name = "translate"
kind = "nat"
mappings = [{ inside = "10.0.0.1:5000", outside = "192.0.2.1:6000" }]
[[tenants.tasks]]
name = "pairs"
kind = "cache"
[[tenants.tasks]]
name = "numbers"
kind = "transport"
"""
ALL = '"wall", "counts", "servers", "translate", "pairs", "numbers", "net"'


@pytest.mark.slow
@pytest.mark.parametrize("target", ["host", "netfpga"])
def test_a_card_with_every_task_is_exported_and_checked(target: str, tmp_path: Path) -> None:
    if not shutil.which("cc" if target == "host" else "iverilog"):
        pytest.skip("needs a C compiler or iverilog")
    plan = plan_of(write(tmp_path, target, flow=ALL, task=OTHERS))
    assert export_card(plan, tmp_path / "card").check is not None


def test_tables_are_read() -> None:
    card = parse_card(text("host", flow=ALL, task=OTHERS))
    tables = {n: t.entries for n, t in card.tasks.items() if isinstance(t, PacketTask)}
    assert tables["soc/counts"] == tables["soc/pairs"] == tables["soc/numbers"] == {}
    servers = tables["soc/servers"]
    assert [servers[i][0] & 0xFF for i in range(5)] == [1, 1, 1, 2, 1]
    assert servers[3] == (0x0A000002, 0x02000000, 0x00020001)
    translate = tables["soc/translate"]
    assert translate[0] == (0x0A000001, 0xC0000201, 5000 << 16 | 6000, 1)
    assert len(translate) == 32
    wall = tables["soc/wall"]
    assert wall[1] == (10 << 24, 0, 53 << 16, 0, 0xFF000000, 0, 0xFFFF0000, 0, 3)
    assert wall[31] == (0,) * 8 + (1,)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("weight = 3", "weight = 64", "sum to 1 to 64"),
        ("02:00:00:00:00:01", "2:0:0:0:0:1", "expected one such as 02:"),
        ('"10.0.0.2"', '"10.0.0.256"', "expected IPv4"),
        ("192.0.2.1:6000", "192.0.2.1:70000", "expected one such as 10"),
        ("192.0.2.1:6000", "192.0.2.1", "expected one such as 10"),
    ],
)
def test_tables_that_are_none_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(CardError, match=message):
        parse_card(text("host", flow=ALL, task=OTHERS.replace(old, new)))
