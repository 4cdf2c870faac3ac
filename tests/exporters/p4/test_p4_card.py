"""A card of several tenants as one P4 program: entries by UID, change while packets flow."""

from dataclasses import replace

import numpy as np
import pytest
import software_cards as cards

from n3ic.card.exporting import export_card, verify_card
from n3ic.card.frames import results_of, traffic, words_of
from n3ic.card.lowering import software_card
from n3ic.errors import CardError, VerifyError
from n3ic.exporters.p4.card.image import change_of, groups_of
from n3ic.exporters.p4.card.verify import check_packet, switch_of
from n3ic.exporters.p4.interpreter import P4Error
from n3ic.exporters.p4.run.packets import INGRESS
from n3ic.model.random_models import random_model

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


@pytest.mark.parametrize(
    ("carrier", "policy"),
    [
        ("header", '{ action = "drop", classes = ["class1"] }'),
        ("vlan", '{ action = "forward", classes = ["class0"], port = 3 }, { action = "drop" }'),
        ("udp-port", ""),
    ],
)
def test_every_network_runs_through_the_joint_program(folder, tmp_path, carrier, policy):
    plan = cards.plan(folder, text(carrier=carrier, policy=policy))
    done = export_card(plan, tmp_path / "out", packets=8)
    assert done.check is not None
    assert done.check.graphs == {f"{name}/g": 8 for name in "abcd"}


def test_networks_of_one_shape_share_stages_and_cost_entries(folder, tmp_path):
    programs, entries = {}, {}
    for names in ("a", "ab", "abc"):
        out = tmp_path / names
        export_card(cards.plan(folder, text(names)), out, verify=False)
        programs[names] = (out / "n3ic_card.p4").read_text()
        entries[names] = (out / "commands.txt").read_text().count("table_add")
    # 10 neurons with weights and limits, and the two readings of the model; b's threshold too,
    # which all of its shape then have.
    assert entries["a"] == 22 and entries["ab"] == 46
    assert programs["ab"].count("control Layer") == programs["a"].count("control Layer") == 2
    assert programs["abc"].count("control Layer") == 5


def test_a_tenant_comes_and_goes_by_entries_alone(folder, tmp_path):
    """b is replaced, removed and set back: every answer of the others stays as it was."""
    card = software_card(cards.plan(folder, text()), "p4")
    export_card(cards.plan(folder, text()), tmp_path / "old", verify=False)
    source = (tmp_path / "old" / "n3ic_card.p4").read_text()
    switch = switch_of(card, source, (tmp_path / "old" / "commands.txt").read_text())
    asked = traffic(card, 4)
    new = replace(random_model((20, 8, 2), np.random.default_rng(5)), shunt=2)
    folder_of_new = tmp_path / "models"
    folder_of_new.mkdir()
    models(folder_of_new)
    new.save(folder_of_new / "b.n3ic")
    export_card(cards.plan(folder_of_new, text()), tmp_path / "new", verify=False)
    assert (tmp_path / "new" / "n3ic_card.p4").read_text() == source

    def check(model):
        for each in asked:
            graph = card.graphs[each.graph]
            outcome = switch.process(each.frame, INGRESS)
            if graph.name != "b/g":
                check_packet(card, each, outcome)
            elif model is None:
                assert outcome.packet[card.result_at :][:4] == bytes(4)
            else:
                field = each.frame[card.offset :][: graph.input_bytes]
                (_, result), *_ = results_of(model, words_of(model, [field], features=False))
                assert outcome.packet[card.result_at :][:10] == result.text

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


def test_a_network_of_another_shape_is_refused_by_the_program(folder, tmp_path):
    card = software_card(cards.plan(folder, text()), "p4")
    export_card(cards.plan(folder, text()), tmp_path / "out", verify=False)
    parts = ((tmp_path / "out" / name).read_text() for name in ("n3ic_card.p4", "commands.txt"))
    switch = switch_of(card, *parts)
    groups = groups_of(card)
    other = change_of(groups[1], 0).replace("g1_", "g0_")
    with pytest.raises(P4Error, match="no action"):
        switch.load(other)


def test_a_wrong_entry_is_found(folder, tmp_path, monkeypatch):
    plan = cards.plan(folder, text("ab"))
    export_card(plan, tmp_path / "out", verify=False)
    commands = tmp_path / "out" / "commands.txt"
    right = commands.read_text()
    lines = right.splitlines()
    place = next(i for i, line in enumerate(lines) if "l1_n0_weights" in line and " 4 =>" in line)
    head, value = lines[place].rsplit(" ", 1)
    lines[place] = f"{head} {int(value, 16) ^ 1:#x}"
    commands.write_text("\n".join(lines) + "\n")
    with pytest.raises(VerifyError, match=r"commands\.txt: not what n3ic"):
        verify_card(plan, tmp_path / "out", 4)
    from n3ic.exporters.p4 import EXPORTER

    with pytest.raises(VerifyError, match="b/g"):
        EXPORTER.verify_card(plan, tmp_path / "out", 12)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('flow = ["net"]', 'flow = ["mine", "net"]', "target p4 has no verilog task"),
        ("", '{ action = "drop", margin = 3 }', "rules of classes, not of margins"),
        ("", '{ action = "mirror", port = 2 }', "does not mirror"),
    ],
)
def test_what_p4_does_not_carry_is_refused(folder, tmp_path, old, new, said):
    document = text("a", policy="" if old else new)
    if old:
        mine = f'[[tenants.tasks]]\nname = "mine"\n{cards.VERILOG}\n'
        document = document.replace("[[tenants.graphs]]", f"{mine}[[tenants.graphs]]")
        document = document.replace(old, new)
    with pytest.raises(CardError, match=said):
        export_card(cards.plan(folder, document), tmp_path / "out", verify=False)


def test_branches_and_features_are_refused(tmp_path):
    cards.models(tmp_path)
    with pytest.raises(CardError, match="give each network a graph and a UID"):
        export_card(cards.plan(tmp_path, cards.text("p4")), tmp_path / "out", verify=False)
