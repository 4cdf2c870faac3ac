# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants as one P4 program: entries by UID, change while packets flow."""

import re
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import CardError, UsageError, VerifyError
from n3ic.exporters.p4.interpreter import P4Error
from n3ic.model.random_models import random_model
from n3ic.systems.card import changes as running
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.export import change_card, export_card, verify_card
from n3ic.systems.card.frames import results_of, traffic, words_of
from n3ic.systems.card.p4.changes import entries_text
from n3ic.systems.card.p4.image import change_of, image_of
from n3ic.systems.card.p4.target import CARDS
from n3ic.systems.card.p4.verify import check_packet, refill, switch_of
from n3ic.targets.packets import INGRESS
from tests.support import software_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")
pytest.importorskip("lark", reason="needs n3ic[p4]")


def models(folder, **masks):
    """Two of one shape, one of another, and one of the first shape with absent connections."""
    for name, shape, density in (
        ("a", (20, 8, 2), None),
        ("b", (20, 8, 2), None),
        ("c", (33, 8, 4, 3), None),
        ("d", (20, 8, 2), 0.7),
    ):
        model = random_model(shape, np.random.default_rng(ord(name)), density=density)
        model = replace(model, shunt=3) if name == "b" else model
        model.save(folder / f"{name}.n3ic")


def text(names="abcd", *, carrier="header", policy=""):
    return cards.alone("p4", names, carrier=carrier, policy=policy)


@pytest.fixture(name="folder", scope="module")
def folder_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("carrier", "policy"),
    [
        pytest.param("header", '{ action = "drop", classes = ["class1"] }', marks=pytest.mark.slow),
        pytest.param(
            "vlan",
            '{ action = "forward", classes = ["class0"], port = 3 }, { action = "drop" }',
            marks=pytest.mark.slow,
        ),
        ("udp-port", ""),
    ],
)
def test_every_network_runs_through_the_joint_program(folder, tmp_path, carrier, policy):
    plan = cards.plan(folder, text(carrier=carrier, policy=policy))
    done = export_card(plan, tmp_path / "out", packets=8)
    assert done.check is not None
    assert done.check.graphs == {f"{name}/g": 8 for name in "abcd"}


@pytest.mark.slow
def test_networks_of_one_shape_share_stages_and_cost_entries(folder, tmp_path):
    programs, entries = {}, {}
    for names in ("a", "ab", "abc"):
        out = tmp_path / names
        export_card(cards.plan(folder, text(names)), out, verify=False)
        programs[names] = (out / "n3ic_card.p4").read_text()
        entries[names] = (out / "commands.txt").read_text().count("table_add")
    # 2 layers with weights and limits, and the two readings of the model; b's threshold too,
    # which all of its shape then have. A graph has its tenant and its network.
    assert entries["a"] == 6 + 2 and entries["ab"] == 14 + 4
    assert programs["ab"].count("control Layer") == programs["a"].count("control Layer") == 2
    assert programs["abc"].count("control Layer") == 5


@pytest.mark.slow
def test_a_tenant_comes_and_goes_by_entries_alone(folder, tmp_path):
    """b is replaced, removed and set back: every answer of the others stays as it was."""
    plan = cards.plan(folder, text())
    card = software_card(plan, "p4")
    export_card(plan, tmp_path / "old", verify=False)
    source = (tmp_path / "old" / "n3ic_card.p4").read_text()
    switch = switch_of(card, source, (tmp_path / "old" / "commands.txt").read_text())
    asked = traffic(card, 4)
    now = 0
    new = replace(random_model((20, 8, 2), np.random.default_rng(5)), shunt=2)
    folder_of_new = tmp_path / "models"
    folder_of_new.mkdir()
    models(folder_of_new)
    new.save(folder_of_new / "b.n3ic")
    export_card(cards.plan(folder_of_new, text()), tmp_path / "new", verify=False)
    assert (tmp_path / "new" / "n3ic_card.p4").read_text() == source

    def check(model):
        nonlocal now
        for each in asked:
            graph = card.graphs[each.graph]
            now += refill(card)
            outcome = switch.process(each.frame, INGRESS, now)
            if graph.name != "b/g":
                check_packet(card, each, outcome)
            elif model is None:
                assert outcome.packet[card.result_at :][:4] == bytes(4)
            else:
                field = each.frame[card.offset :][: graph.input_bytes]
                (_, result), *_ = results_of(model, words_of(model, [field], features=False))
                assert outcome.packet[card.result_at :][:10] == result.text

    check(card.networks["b/net"])
    switch.load(entries_text(card, running.CardChange("replace", (), {"b/net": new})))
    check(new)
    switch.load(entries_text(card, running.change_of(plan.card, "load", "b")))
    check(card.networks["b/net"])
    switch.load((tmp_path / "new" / "graphs" / "4.txt").read_text())
    check(new)
    switch.load((tmp_path / "old" / "graphs" / "4-remove.txt").read_text())
    check(None)
    # half of a change: no answer claims to be of a network
    lines = (tmp_path / "old" / "graphs" / "4.txt").read_text().splitlines()
    switch.load("\n".join(lines[: len(lines) // 2]))
    check(None)
    switch.load("\n".join(lines))
    check(card.networks["b/net"])
    switch.load("\n".join(lines[: len(lines) // 2]))
    check(None)


def test_packets_of_a_removed_graph_spend_nothing(folder, tmp_path):
    """All at one time: every packet bears no model, and none is dropped for the rate."""
    plan = cards.plan(folder, text("ab"))
    card = software_card(plan, "p4")
    directory = export_card(plan, tmp_path / "card", verify=False).directory
    source = (directory / "n3ic_card.p4").read_text()
    switch = switch_of(card, source, (directory / "commands.txt").read_text())
    frame = next(a for a in traffic(card, 2) if card.graphs[a.graph].name == "b/g").frame
    tenant = card.tenants[next(g.tenant for g in card.graphs if g.name == "b/g")]
    fit = tenant.burst // len(frame)
    assert fit < 2000
    switch.load(entries_text(card, running.change_of(plan.card, "remove", "b")))
    for _ in range(2 * fit):
        packet = switch.process(frame, INGRESS, 1).packet
        assert packet[card.result_at :][:4] == bytes(4)
    switch.load(entries_text(card, running.change_of(plan.card, "load", "b")))
    model = card.networks["b/net"].digest[:8]
    answers = [switch.process(frame, INGRESS, 1).packet for _ in range(fit + 1)]
    assert answers.pop() == b""
    assert {a[card.result_at :][:4].hex() for a in answers} == {model}


@pytest.mark.slow
def sent(switch, lines):
    """Send commands as simple_switch_CLI does, which goes on; return those that were refused."""
    refused = []
    for line in lines:
        try:
            switch.load(line)
        except P4Error:
            refused.append(line)
    return refused


@pytest.mark.first_case
@pytest.mark.parametrize("entries", ["nothing", "the same", "another", "half of another"])
def test_the_commands_of_a_card_hold_whatever_the_switch_has(tmp_path, entries):
    """The other card has other networks and a policy, which must not stay."""
    shapes, cards_of, lines = ((6, 3, 2), (6, 3, 2), (9, 2, 3)), {}, {}
    for first, name in enumerate(("new", "old")):
        (tmp_path / name).mkdir()
        for seed, (which, shape) in enumerate(zip("abc", shapes, strict=True)):
            model = random_model(shape, np.random.default_rng(10 * first + seed))
            replace(model, shunt=2).save(tmp_path / name / f"{which}.n3ic")
        policy = '{ action = "drop" }' if name == "old" else ""
        plan = cards.plan(tmp_path / name, text("abc", policy=policy))
        cards_of[name] = software_card(plan, "p4")
        export_card(plan, tmp_path / name / "out", verify=False)
        lines[name] = (tmp_path / name / "out" / "commands.txt").read_text().splitlines()
    source = (tmp_path / "new" / "out" / "n3ic_card.p4").read_text()
    card, other = cards_of["new"], lines["old"]
    switch = switch_of(card, source, "")
    before = {
        "nothing": [],
        "the same": lines["new"],
        "another": other,
        "half of another": other[: len(other) // 2],
    }[entries]
    # The table of policies has room for the rules of the program's own card.
    assert [line for line in sent(switch, before) if " policy " not in line] == []
    asked, now, at = traffic(card, 1), 0, 0
    numbers = sum("model" in line for line in lines["new"] if "clear" in line)
    # Once the models' numbers are cleared: all of this card, or no model.
    for until in (numbers, 2 * numbers, len(lines["new"]) // 2, -9, -2, -1, len(lines["new"])):
        until %= 1 + len(lines["new"])
        assert sent(switch, lines["new"][at:until]) == []
        at = until
        for each in asked:
            now += refill(card)
            outcome = switch.process(each.frame, INGRESS, now)
            if at == len(lines["new"]) or any(outcome.packet[card.result_at :][:4]):
                check_packet(card, each, outcome)


def test_a_change_by_command_is_that_of_an_export_anew(folder, tmp_path):
    """Loaded and removed: the files of a fresh export, without making one."""
    plan = cards.plan(folder, text("abc"))
    directory = export_card(plan, tmp_path / "card", verify=False).directory
    new = replace(random_model((20, 8, 2), np.random.default_rng(5)), shunt=2)
    fresh = tmp_path / "models"
    fresh.mkdir()
    models(fresh)
    new.save(fresh / "b.n3ic")
    anew = export_card(cards.plan(fresh, text("abc")), tmp_path / "anew", verify=False).directory
    for verb, who, model, expected in (
        ("load", "b/g", fresh / "b.n3ic", anew / "graphs" / "4.txt"),
        ("remove", "b/g", None, directory / "graphs" / "4-remove.txt"),
        ("load", "b", None, directory / "graphs" / "4.txt"),
    ):
        out = tmp_path / f"{verb}{model is None}"
        change = running.change_of(plan.card, verb, who, model)
        assert str(out) in change_card(plan, directory, change, str(out))
        assert out.read_text() == expected.read_text()
    again = running.change_of(plan.card, "remove", "b")
    with pytest.raises(UsageError, match="exists"):
        change_card(plan, directory, again, str(tmp_path / "loadTrue"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "shape", "shunt", "density", "message"),
    [
        ("a", (20, 16, 2), 0, None, "the program has stages for 20-8-2, got 20-16-2"),
        ("a", (20, 8, 2), 0, 0.6, "layers with and without masks"),
        ("c", (33, 8, 4, 3), 2, None, "no shunting threshold for its shape"),
    ],
)
def test_a_network_that_the_program_lacks_stages_for_is_refused(
    folder, tmp_path, who, shape, shunt, density, message
):
    plan = cards.plan(folder, text("abc"))
    directory = export_card(plan, tmp_path / "card", verify=False).directory
    model = random_model(shape, np.random.default_rng(5), density=density)
    replace(model, shunt=shunt).save(tmp_path / "new.n3ic")
    change = running.change_of(plan.card, "replace", who, tmp_path / "new.n3ic")
    with pytest.raises(CardError, match=message):
        change_card(plan, directory, change, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_network_of_another_shape_is_refused_by_the_program(folder, tmp_path):
    card = software_card(cards.plan(folder, text()), "p4")
    export_card(cards.plan(folder, text()), tmp_path / "out", verify=False)
    parts = ((tmp_path / "out" / name).read_text() for name in ("n3ic_card.p4", "commands.txt"))
    switch = switch_of(card, *parts)
    other = change_of(image_of(card), card.graphs[2]).replace("g1_", "g0_")
    with pytest.raises(P4Error, match="no action"):
        switch.load(other)


def test_a_wrong_entry_is_found(folder, tmp_path, monkeypatch):
    plan = cards.plan(folder, text("ab"))
    export_card(plan, tmp_path / "out", verify=False)
    commands = tmp_path / "out" / "commands.txt"
    right = commands.read_text()
    lines = right.splitlines()
    place = next(i for i, line in enumerate(lines) if "l1_weights0" in line and " 2 =>" in line)
    head, value = lines[place].rsplit(" ", 1)
    lines[place] = f"{head} {int(value, 16) ^ 1:#x}"
    commands.write_text("\n".join(lines) + "\n")
    with pytest.raises(VerifyError, match=r"commands\.txt: not what n3ic"):
        verify_card(plan, tmp_path / "out", 4)
    with pytest.raises(VerifyError, match="b/g"):
        CARDS.verify_card(plan, tmp_path / "out", 12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('flow = ["net"]', 'flow = ["mine", "net"]', "target p4 has no verilog task"),
        ("", '{ action = "mark", mark = 3 }', 'expected uid = "udp-port"'),
        ("", '{ action = "mirror", port = 2 }', "does not mirror"),
    ],
)
def test_what_p4_does_not_carry_is_refused(folder, tmp_path, old, new, message):
    document = text("a", policy="" if old else new)
    if old:
        mine = f'[[tenants.tasks]]\nname = "mine"\n{cards.VERILOG}\n'
        document = document.replace("[[tenants.graphs]]", f"{mine}[[tenants.graphs]]")
        document = document.replace(old, new)
    with pytest.raises(CardError, match=message):
        export_card(cards.plan(folder, document), tmp_path / "out", verify=False)


def test_features_are_refused(tmp_path):
    cards.models(tmp_path)
    with pytest.raises(CardError, match="target p4 has no input stage"):
        export_card(cards.plan(tmp_path, cards.text("p4")), tmp_path / "out", verify=False)


@pytest.fixture(name="branches", scope="module")
def branches_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("branches")
    cards.differing_models(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("carrier", "policy"),
    [
        pytest.param("header", "", marks=pytest.mark.slow),
        pytest.param(
            "vlan",
            '{ action = "drop", classes = ["class1"], margin = 2 }',
            marks=pytest.mark.slow,
        ),
        (
            "udp-port",
            '{ action = "forward", port = 3, classes = ["class0"], margin = 1, below = 4 }, '
            '{ action = "forward", margin = 4 }, { action = "drop" }',
        ),
        pytest.param(
            "udp-port",
            '{ action = "mark", mark = 41, margin = 1 }, { action = "drop" }',
            marks=pytest.mark.slow,
        ),
    ],
)
def test_branches_are_joined_and_policies_see_margins(branches, tmp_path, carrier, policy):
    """All joins in random order on one card, and a vote of two beside one of four."""
    joins = ("both", "vote", "most-certain", "vote")
    text = cards.joining("p4", carrier=carrier, joins=joins, policy=policy)
    done = export_card(cards.plan(branches, text), tmp_path / "out", packets=30)
    assert done.check is not None
    assert done.check.inferences == 30 * (4 + 4 + 4 + 2)


@pytest.mark.slow
def test_a_wrong_mark_is_found(branches, tmp_path):
    rule = '{ action = "mark", mark = 41, margin = 1 }'
    text = cards.joining("p4", joins=["most-certain"], carrier="udp-port", policy=rule)
    wrong(branches, tmp_path, text, "(meta.sum >> 16)", "0", "t3/most-certain")


def wrong(folder, tmp_path, text, old, new, message, name="n3ic_card.p4"):
    """A change of what was exported, which the verification finds."""
    plan = cards.plan(folder, text)
    export_card(plan, tmp_path / "out", verify=False)
    path = tmp_path / "out" / name
    right = path.read_text()
    assert old in right
    path.write_text(right.replace(old, new))
    with pytest.raises(VerifyError, match=message):
        CARDS.verify_card(plan, tmp_path / "out", 30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("join", "old", "new"),
    [
        ("both", "hdr.more1.model = meta.kept1_model", "hdr.more1.model = meta.kept2_model"),
        ("both", "@field_list(1) bit<32> kept1_margin", "bit<32> kept1_margin"),
        ("vote", "@field_list(1) bit<32> votes1", "bit<32> votes1"),
        ("vote", "(meta.class_id == HOST)", "(meta.class_id == 7)"),  # the host has no vote
        ("vote", "top_model = meta.voter0", "top_model = meta.voter1"),
        ("vote", "meta.voter0 = (meta.voter0 & ", "meta.voter0 = (0 & "),  # the last one's model
        (  # the last of a tie
            "most-certain",
            "((meta.top_margin - meta.margin) >> 31)",
            "(((meta.top_margin - meta.margin) - 1) >> 31)",
        ),
        ("most-certain", "@field_list(1) bit<16> top_class", "bit<16> top_class"),
        ("most-certain", "meta.turn = meta.turn + 1", "meta.turn = meta.turn + 2"),
    ],
)
def test_a_wrong_join_is_found(branches, tmp_path, join, old, new):
    wrong(branches, tmp_path, cards.joining("p4", joins=[join]), old, new, "t3/")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        ('{ action = "drop", margin = 4 }', "0x4->", "0x5->"),
        ('{ action = "drop", below = 4 }', "->0x3", "->0x4"),
        (  # the first rule counts
            '{ action = "forward", below = 4 }, { action = "drop" }',
            "0x0->0x3 => 1",
            "0x0->0x3 => 3",
        ),
    ],
)
def test_a_wrong_rule_is_found(branches, tmp_path, rule, old, new):
    text = cards.joining("p4", joins=["most-certain"], policy=rule)
    wrong(branches, tmp_path, text, old, new, "t3/most-certain", "commands.txt")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        # red packets leave, green ones do not
        ("n3ic_card.p4", "(meta.color != GREEN) {", "(meta.color == 3) {", "above its rate"),
        ("n3ic_card.p4", "(meta.color != GREEN) {", "(meta.color == GREEN) {", "by port None"),
        ("n3ic_card.p4", "MeterType.bytes", "MeterType.packets", "above its rate"),
        # one bucket for two tenants
        (
            "commands.txt",
            "police_tenant 4 => 0x1",
            "police_tenant 4 => 0x0",
            "b/g answers otherwise than before",
        ),
        ("commands.txt", "meter_set_rates tenants 1 ", "meter_set_rates tenants 0 ", "above"),
    ],
)
def test_a_wrong_rate_is_found(folder, tmp_path, name, old, new, message):
    wrong(folder, tmp_path, text("abc"), old, new, message, name)


def test_a_tenant_that_floods_takes_from_its_own_bucket_alone(folder, tmp_path):
    """At one moment only its burst passes; then as much as its rate gives."""
    plan = cards.plan(folder, text("ab"))
    card = software_card(plan, "p4")
    export_card(plan, tmp_path / "out", verify=False)
    parts = ((tmp_path / "out" / name).read_text() for name in ("n3ic_card.p4", "commands.txt"))
    switch = switch_of(card, *parts)
    mine, theirs = (next(a for a in traffic(card, 2) if a.graph == g) for g in (0, 1))
    flood = replace(theirs, frame=theirs.frame.ljust(1000, b"\0"))
    burst, rate = card.tenants[1].burst, card.tenants[1].rate
    ports = [switch.process(flood.frame, INGRESS).port for _ in range(burst // 1000 + 20)]
    assert all(port is not None for port in ports[: burst // 1000])
    assert ports[burst // 1000 :] == [None] * 20
    check_packet(card, mine, switch.process(mine.frame, INGRESS))
    wait = -(-1000 * 10**6 // rate)
    check_packet(card, flood, switch.process(flood.frame, INGRESS, wait))
    assert switch.process(flood.frame, INGRESS, wait).port is None


@pytest.mark.slow
def test_branches_cost_entries_and_passes_but_no_stages(branches, tmp_path):
    """Two graphs of a tenant have the same networks: their weights are there once."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in "ab":
        random_model((20, 8, 2), np.random.default_rng(ord(name))).save(folder / f"{name}.n3ic")
    one = cards.alone("p4", "a")
    two = one.replace(
        "[[tenants.graphs]]",
        cards.TASK.format(name="b", kind="network", model="b") + "[[tenants.graphs]]",
    ).replace('flow = ["net"]', 'flow = [{ join = "vote", branches = [["net"], ["b"]] }]')
    shared = (
        two
        + """
[[tenants.graphs]]
name = "h"
uid = 9
wants = "1000 packets/s"
flow = [{ join = "most-certain", branches = [["b"], ["net"]] }]
"""
    )
    programs, commands = {}, {}
    for name, document in (("one", one), ("two", two), ("shared", shared)):
        done = export_card(cards.plan(folder, document), tmp_path / name, packets=12)
        assert done.check is not None
        programs[name] = (tmp_path / name / "n3ic_card.p4").read_text()
        commands[name] = (tmp_path / name / "commands.txt").read_text()
    assert programs["one"].count("control Layer") == programs["two"].count("control Layer") == 2
    weights = {name: len(re.findall(r"add l\d_weights0 ", text)) for name, text in commands.items()}
    assert weights == {"one": 2, "two": 4, "shared": 4}
    # turns of both branches, the tenant and the entries of the second network
    added = {name: text.count("table_add") for name, text in commands.items()}
    assert added["two"] == added["one"] + 6 + 1 and added["shared"] == added["two"] + 3


@pytest.mark.slow
def test_half_of_a_change_of_a_branch_leaves_no_answer_a_model(branches, tmp_path):
    plan = cards.plan(branches, cards.joining("p4", joins=["vote", "most-certain"]))
    card = software_card(plan, "p4")
    export_card(plan, tmp_path / "out", verify=False)
    parts = ((tmp_path / "out" / name).read_text() for name in ("n3ic_card.p4", "commands.txt"))
    switch = switch_of(card, *parts)
    lines = (tmp_path / "out" / "graphs" / "3.txt").read_text().splitlines()
    asked, now = traffic(card, 6), 0
    cleared = sum(" g" in line and "_no_model" in line for line in lines)
    assert cleared == 2 * 4
    for upto in (1, 3, cleared, len(lines) // 2, len(lines) - 6):
        switch.load("\n".join(lines[:upto]))
        for each in asked:
            now += refill(card)
            outcome = switch.process(each.frame, INGRESS, now)
            if each.graph == 0:
                assert outcome.packet[card.result_at :][:4] == bytes(4)
            else:
                check_packet(card, each, outcome)
    switch.load("\n".join(lines))
    for each in asked:
        now += refill(card)
        check_packet(card, each, switch.process(each.frame, INGRESS, now))


@pytest.mark.slow
def test_the_plan_counts_what_the_program_has(branches, folder, tmp_path):
    """Tables and PHV bits of the compiled program and its entries, though networks share them."""
    rules = '{ action = "drop", margin = 3 }, { action = "forward" }'
    joined = cards.joining("p4", joins=("both", "vote"), policy=rules)
    for name, where, document in (
        ("joined", branches, joined),
        ("one", folder, text("ab")),
        ("other", folder, text("abcd")),
    ):
        plan = cards.plan(where, document)
        export_card(plan, tmp_path / name, verify=False)
        source, commands = (
            (tmp_path / name / file).read_text() for file in ("n3ic_card.p4", "commands.txt")
        )
        switch = switch_of(software_card(plan, "p4"), source, commands)
        counted = {
            "tables": len(switch.tables),
            "table_entries": commands.count("table_add"),
            "phv": switch.metadata_bits + switch.header_bits,
            "stages": len(re.findall(r"table (?:popcount\d+_\d+|counts\d+) ", source)),
        }
        needs = [cost.needs for cost in plan.costs.values()]
        for resource, amount in counted.items():
            total = sum(n[resource].value for n in needs if resource in n)
            assert total == pytest.approx(amount), (name, resource)


def test_networks_that_share_tables_fit_where_they_would_not_alone(folder):
    """Each of two networks has 27 tables alone, of 40 that there are."""
    small = '[device.resources]\ntables = {}\n[[tenants]]\nname = "a"'
    document = text("ab").replace('[[tenants]]\nname = "a"', small.format(40))
    assert cards.plan(folder, document).problems == ()
    assert cards.plan(folder, document.replace("tables = 40", "tables = 20")).problems
