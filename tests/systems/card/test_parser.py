# SPDX-License-Identifier: Apache-2.0
"""``card.toml``: what it says, and errors that name the line."""

import contextlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

from n3ic.errors import CardError
from n3ic.systems.card.description import (
    InputStage,
    NetworkTask,
    Parallel,
    Policy,
    Rate,
    Rule,
    Series,
    TaskGraph,
)
from n3ic.systems.card.parser import parse_card, read_card

CARD = """\
name = "edge"

[device]
resources = { units = 6 }
regions = 3
uid = "vlan"

[[tasks]]
name = "meter"
kind = "meter"
needs = { units = 1 }

[[tenants]]
name = "ops"
weight = 2

[[tenants.tasks]]
name = "q00"
kind = "network"
model = "run"
network = "q00"
options = { style = "unrolled" }

[[tenants.tasks]]
name = "q01"
kind = "network"
model = "run"
network = "q01"

[[tenants.tasks]]
name = "act"
kind = "policy"
rules = [
    { action = "drop", classes = ["congested"], margin = 3 },
    { action = "forward", port = 1, below = 3 },
]

[[tenants.graphs]]
name = "tomography"
uid = 7
wants = "8 Gb/s"
packet_bytes = 500
flow = [
    "meter",
    { branches = [["q00"], ["q01"]], join = "vote" },
    "act",
]

[[tenants]]
name = "lab"

[[tenants.tasks]]
name = "mine"
kind = "verilog"
sources = ["mine.v"]
top = "mine"
needs = { units = 2 }
rate = "10 Gb/s"

[[tenants.graphs]]
name = "own"
uid = 8
wants = "1.5e6 inferences/s"
inferences_per_packet = 0.5
flow = ["meter", "mine"]
"""


def line_of(text: str, at: str) -> int:
    """Where a text begins, from 1."""
    return text[: text.index(at)].count("\n") + 1


def changed(old: str, new: str) -> str:
    """The card with another text in one place."""
    assert old in CARD
    return CARD.replace(old, new, 1)


def refused(text: str, at: str, message: str) -> None:
    """A card is refused, for the reason and with the line."""
    with pytest.raises(CardError, match=message) as caught:
        parse_card(text, "c.toml")
    assert str(caught.value).startswith(f"c.toml:{line_of(text, at)}: ")


def test_a_card_is_read_whole():
    card = parse_card(CARD, folder=Path("/somewhere"))
    assert (card.name, card.device.regions, card.device.uid) == ("edge", 3, "vlan")
    assert list(card.tasks) == ["meter", "ops/q00", "ops/q01", "ops/act", "lab/mine"]
    q00 = card.tasks["ops/q00"]
    assert isinstance(q00, NetworkTask) and q00.line == line_of(CARD, "[[tenants.tasks]]")
    assert (q00.model, q00.network) == (Path("/somewhere/run"), "q00")
    assert q00.options == {"style": "unrolled"}
    policy = card.tasks["ops/act"]
    assert isinstance(policy, Policy)
    assert policy.rules == (
        Rule("drop", ("congested",), margin=3),
        Rule("forward", below=3, port=1),
    )
    branches = Parallel((Series(("ops/q00",)), Series(("ops/q01",))), "vote")
    flow = Series(("meter", branches, "ops/act"))
    assert card.tenants[0].graphs == (
        TaskGraph("tomography", 7, Rate(8, "Gb/s"), flow, packet_bytes=500),
    )
    assert card.tenants[0].graphs[0].wanted == 2e6
    assert card.tenants[1].graphs[0].wanted == 3e6
    assert list(flow.edges()) == [
        *(("meter", "ops/q00"), ("meter", "ops/q01")),
        *(("ops/q00", "ops/act"), ("ops/q01", "ops/act")),
    ]
    assert {uid: graph.name for uid, (_, graph) in card.graphs.items()} == {
        7: "tomography",
        8: "own",
    }


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        ('uid = "vlan"', 'uid = "mpls"', "uid =", "'uid': expected one of header, vlan, udp-port"),
        ("regions = 3", "regions = 0", "regions", "a whole number from 1 to 64, got 0"),
        ("regions = 3", "queue = 100", "queue", "'queue': expected a power of two, got 100"),
        ("regions = 3", "queue = 8192", "queue", "a whole number from 16 to 4096, got 8192"),
        ("regions = 3", "region = 3", "region", "unknown key 'region'.*did you mean 'regions'"),
        ("weight = 2", "weight = -1", "weight", "a number above 0, at most 1e.06, got -1"),
        ("weight = 2", f"weight = {10**400}", "weight", "a number above 0"),
        ("weight = 2", "weight = true", "weight", "a number above 0"),
        ("weight = 2", "ports = [0]", "ports", "a list of ports, 1 to 255, got .0."),
        ("weight = 2", "weight = nan", "weight", "a number above 0"),
        ("weight = 2", "bucket_ms = 0", "bucket_ms", "a number above 0, at most 1000, got 0"),
        ('kind = "meter"', 'kind = "metre"', "kind", "expected one of meter, input, network"),
        ('"8 Gb/s"', '"8 GB/s"', "wants", "expected a rate such as .* got '8 GB/s'"),
        ('"8 Gb/s"', '"inf Gb/s"', "wants", "expected a rate"),
        ('wants = "8 Gb/s"', "", "[[tenants.graphs]]", "expected 'wants'.*missing"),
        ("uid = 7", "uid = 4095", "uid = 4095", "from 1 to 4094, got 4095"),
        (
            "uid = 8",
            "uid = 7",
            '[[tenants.graphs]]\nname = "own"',
            "expected one of its own",
        ),
        ('["q00"], ["q01"]', '["q00"], ["q02"]', "flow", "unknown task 'q02', expected one of me"),
        ('["q00"], ["q01"]', '["q00"]', "flow", "two branches or more"),
        ('["q00"], ["q01"]', '["q00"], ["q00"]', "flow", "'ops/q00' twice"),
        ('"vote"', '"best"', "flow", "join: expected one of vote, most-certain, both, got 'best'"),
        ('"vote"', "7", "flow", "join: expected one of vote, most-certain, both, got 7"),
        ('"meter",\n    {', "3,\n    {", "flow", "expected a task's name"),
        ('flow = ["meter", "mine"]', 'flow = ["q00"]', 'flow = ["q', "unknown task 'q00'"),
        ('flow = ["meter", "mine"]', 'flow = ["ops/q00"]', 'flow = ["o', "unknown task 'ops/q00'"),
        (
            '"meter", "mine"]',
            '"meter"]',
            '[[tenants.tasks]]\nname = "mine',
            "no graph's flow names",
        ),
        ('name = "lab"', 'name = "ops"\n#', 'name = "ops"\n#', "a second tenant named 'ops'"),
        ('name = "lab"', 'name = "../ops"', 'name = "../ops"', "expected a name of letters"),
        (
            'name = "q01"',
            'name = "q00"\n#',
            'name = "q00"\n#',
            "a second task named",
        ),
        ('model = "run"', "", '[[tenants.tasks]]\nname = "q00', "expected 'model'"),
        ('rate = "10 Gb/s"', "", '[[tenants.tasks]]\nname = "mine', "expected 'rate'"),
        ('top = "mine"', 'top = "mine; initial"', "top", "the name of a Verilog module"),
        ("port = 1,", "margin = 4,", "rules", "'below': expected more than 'margin'"),
        ("{ units = 1 }", "{ units = -1 }", "needs", "units: expected an amount"),
        ("[device]", "[device", "[device", "not valid TOML"),
        ('name = "edge"', 'name = "edge"\nname = "a"', 'name = "a"', "not valid TOML"),
        ("resources = { units = 6 }", "", "[device]", "expected 'target' in .device., or"),
    ],
)
def test_an_error_names_the_line(old, new, at, message):
    refused(changed(old, new), at, message)


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ('["act", "q00", "q01", "meter"]', "network 'ops/q00' after policy 'ops/act', expected"),
        ('["q00", "meter", "act", "q01"]', "meter 'meter' after network 'ops/q00'"),
        ('["meter", "q00", "q01", "act"]', "network 'ops/q01' after network 'ops/q00'"),
        (
            '["meter", { branches = [["q00"], ["act"]], join = "both" }, "q01"]',
            "network 'ops/q01' after policy 'ops/act', expected meter, input, network, policy",
        ),
        ('["q01", { branches = [["q00"], ["meter"]], join = "both" }, "act"]', "after network"),
    ],
)
def test_tasks_in_an_order_that_makes_no_sense_are_refused(flow, message):
    begin, end = CARD.index("flow = ["), CARD.index('[[tenants]]\nname = "lab"')
    refused(f"{CARD[:begin]}flow = {flow}\n{CARD[end:]}", "flow", message)


@pytest.mark.parametrize(
    "flow",
    [
        '["mine", "meter"]',
        '["meter", "q", "mine", "q2", "act", "act2"]',
        '["meter", "act", "mine"]',
    ],
)
def test_a_users_task_gives_whatever_it_likes(flow):
    tasks = "".join(
        f'[[tasks]]\nname = "{name}"\nkind = "{kind}"\n{more}\n'
        for name, kind, more in (
            ("q", "network", 'model = "run"'),
            ("q2", "network", 'model = "run"'),
            ("act", "policy", 'rules = [{ action = "drop" }]'),
            ("act2", "policy", 'rules = [{ action = "drop" }]'),
        )
        if f'"{name}"' in flow
    )
    begin, end = CARD.index("[[tenants]]"), CARD.index('[[tenants]]\nname = "lab"')
    text = CARD[:begin] + tasks + CARD[end:]
    card = parse_card(text.replace('flow = ["meter", "mine"]', f"flow = {flow}"))
    assert len(list(card.tenants[0].graphs[0].flow.tasks())) == flow.count('"') // 2


def test_files_that_are_no_card(tmp_path):
    path = tmp_path / "card.toml"
    with pytest.raises(CardError, match="cannot be read: No such file"):
        read_card(path)
    path.write_bytes(CARD.encode().replace(b"edge", b"\xff"))
    with pytest.raises(CardError, match=r"card.toml:1: expected UTF-8, got byte 0xff"):
        read_card(path)
    path.write_bytes(b"#" * (1 << 19))
    with pytest.raises(CardError, match="larger than 256 KiB"):
        read_card(path)
    path.write_text(f"x = {'[' * 3000}{']' * 3000}")
    with pytest.raises(CardError, match=r"card.toml:1: nested too deeply"):
        read_card(path)
    path.write_text(CARD)
    assert read_card(path) == parse_card(CARD, str(path), tmp_path)


def test_a_models_input_stage_and_lines_after_long_texts():
    text = changed('name = "edge"', 'name = """\nedge\n[tenants]\nuid = 1\n"""')
    refused(text.replace("uid = 7", "uid = 0"), "uid = 0", "'uid'")
    as_input = changed('kind = "meter"\n', 'kind = "input"\nmodel = "m.n3ic"\n')
    card = parse_card(as_input, folder=Path("x"))
    assert card.tasks["meter"] == InputStage(
        name="meter", model=Path("x/m.n3ic"), needs={"units": 1}
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "name = 'a'\r\n[device]\r\nregions = 0\r\nresources.a = 1",
            3,
            "'regions': expected a who",
        ),
        ("name = 'a' # \"\"\"\n# [device]\n[device]\nuid = 'x'\nresources.a = 1", 4, "'uid'"),
        ("'name' = '''\n[device]\n''''\n[device]\nregions = 0\nresources.a = 1", 5, "'regions'"),
        ('name = """a""""\n[device]\nregions = 0\nresources.a = 1', 3, "'regions'"),
        ('name = """\\"""\n"""\n[device]\nregions = 0\nresources.a = 1', 4, "'regions'"),
        ('name = "\\\\" # "\n[device]\nregions = 0\nresources.a = 1', 3, "'regions'"),
        ('[ "de\\u0076ice" ]\nresources.a = 1\n"regi\\u006fns" = 0', 3, "'regions'"),
        ("device.resources.a = 1\ndevice.uid = 'vlan'\ndevice.regions = 0", 3, "'regions'"),
        ("[device]\nresources = { a = 1\n b = 2 }", 2, "not valid TOML"),
        ("[device.resources]\na = 1\n\nb = -2\n", 4, "resources.b: expected an amount"),
        ("[device.resources]\na = [\n1,\n'''\n]'''\n]\nb = 2", 2, "resources.a: expected"),
        ("[device]\nregions = 1\nregions = 1", 3, "not valid TOML"),
        ("[device]\n[tasks]\n[device]", 3, "not valid TOML"),
        ('[device]\nregions = "x\n', 2, "not valid TOML"),
        ("[device]\nregions = [\n\n", 4, "not valid TOML"),
        (f"\n\nweight = {'1' * 5000}\n\n", 3, "a word of 5000 characters, expected 1000"),
        (f"\nx = {'[' * 3000}\n", 2, "nested too deeply"),
        (f"\nx = {'{a=' * 3000}\n", 2, "nested too deeply"),
        (f"\n[{'.'.join('a' * 999)}]\n", 2, "more than 8 parts"),
        (f"x = [{'[],' * 999}]\ny.{'.'.join('a' * 999)} = 1\n", 2, "more than 8 parts"),
        (f"x = 1\ny = {{ {'.'.join('a' * 999)} = 1 }}\n", 2, "more than 8 parts"),
        ("device.resources.a = 1\n\n[[tasks]]\n[[tasks]]\nkind = 3", 3, "expected 'kind'"),
        (
            "device.resources.a = 1\n[[tenants]]\nname = 'a'\n[[tenants.tasks]]\nkind = 'policy'\n"
            "name = 'b'\nrules = [{ action = 'drop' }]\n[[tenants.tasks]]\n\nkind = 3",
            10,
            "'kind'",
        ),
        ("device.resources.a = 1\n[[tenants]]\nname = 'a'\n[[tenants]]\nname = 'b'", 2, "graphs"),
    ],
)
def test_an_error_names_the_line_however_it_is_written(text, line, message):
    with pytest.raises(CardError, match=message) as caught:
        parse_card(text, "c.toml")
    assert str(caught.value).startswith(f"c.toml:{line}: ")


def tenants(count):
    """As many tenants as are asked for, who share a task."""
    policy = "kind = 'policy'\nrules = [{ action = 'drop' }]\n"
    text = "[device.resources]\na = 1\n[[tasks]]\nname = 'p'\n" + policy
    for i in range(count):
        text += f"[[tenants]]\nname='t{i}'\n[[tenants.graphs]]\nname='g'\nuid={i + 1}\n"
        text += "wants='1 Gb/s'\nflow=['p']\n"
    return text


def long_flow(count):
    """One graph, of as many policies as are asked for."""
    text = "[device.resources]\na = 1\n"
    for i in range(count):
        text += f"[[tasks]]\nname='p{i}'\nkind='policy'\nrules=[{{action='drop'}}]\n"
    flow = ",".join(f"'p{i}'" for i in range(count))
    text += "[[tenants]]\nname='t'\n[[tenants.graphs]]\nname='g'\nuid=1\nwants='1 Gb/s'\n"
    return f"{text}flow=[{flow}]\n"


LONG = {
    "tenants": tenants,
    "a flow": long_flow,
    "short lines": lambda n: "".join(f"k{i}=1\n" for i in range(n)),
    "a long list": lambda n: "x=[\n" + "1,\n" * n + "]\n",
    "a long text": lambda n: 'x="""\n' + '\\"""\n' * n + '"""\n',
    "open texts": lambda n: '"""\\' * n,
    "open quotes": lambda n: 'x="' * n,
    "open lists": lambda n: "x=" + "[" * n,
    "open tables": lambda n: "x=" + "{a=" * n,
    "lists of lists": lambda n: "x=[" + "[[[]]],\n" * n + "]",
    "a long key": lambda n: ".".join("a" * n) + "=1\n",
    "a long key within": lambda n: "x={" + ".".join("a" * n) + "=1}\n",
    "a deep table": lambda n: f"[{'.'.join('a' * n)}]\n" + "k=1\n" * n,
    "tables": lambda n: "".join(f"[a.b{i}]\n" for i in range(n)),
    "one table twice": lambda n: "".join(f"[a{i}]\n" for i in range(n)) + "[a0]\n",
    "a key twice": lambda n: "k=1\n" * n,
    "a long number": lambda n: "x=" + "1" * n,
    "a long name": lambda n: "x" * n + "=1",
    "quoted keys": lambda n: "".join(f'"k\\u0041{i}"=1\n' for i in range(n)),
}


def work_of(text, monkeypatch):
    """Lines of Python that run, and characters that tomllib is given, while a card is read."""
    done = 0
    loads = tomllib.loads

    def count(frame, event, _):
        nonlocal done
        done += event == "line"
        return count

    def counted(part):
        nonlocal done
        done += len(part)
        return loads(part)

    monkeypatch.setattr(tomllib, "loads", counted)
    before = sys.gettrace()
    sys.settrace(count)
    try:
        with contextlib.suppress(CardError):
            parse_card(text)
    finally:
        sys.settrace(before)
        monkeypatch.undo()
    return done


@pytest.mark.parametrize("what", LONG)
def test_work_grows_as_the_card_does(what, monkeypatch):
    parse_card(CARD)  # what is compiled or imported once
    small, large = (work_of(LONG[what](n), monkeypatch) for n in (25, 200))
    assert large <= 8.5 * small + 200


def test_a_card_of_many_tenants_is_gone_through_once_by_tomllib(monkeypatch):
    given, loads = [], tomllib.loads
    monkeypatch.setattr(tomllib, "loads", lambda text: given.append(text) or loads(text))
    text = tenants(1600)
    assert (1 << 17) < len(text) <= 1 << 18
    assert len(parse_card(text).tenants) == 1600
    assert given == [text]


def test_the_description_in_the_how_to_can_be_read(repository):
    page = (repository / "docs" / "how-to" / "card.md").read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    card = parse_card(text)
    assert list(card.tasks) == ["meter", "soc/anomaly", "soc/wall", "soc/act"]
    assert card.device.spare == 1
