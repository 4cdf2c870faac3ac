"""A card of several tenants in the kernel: slots by UID, a token bucket a tenant."""

from dataclasses import replace

import numpy as np
import pytest
import software_cards as cards

from n3ic.card.exporting import export_card
from n3ic.card.frames import joined, results_of, traffic, words_of
from n3ic.card.lowering import software_card
from n3ic.errors import CardError, MissingDependencyError, VerifyError
from n3ic.exporters.xdp.card.image import image_of, tenant_value, write_card
from n3ic.exporters.xdp.card.program import DROP, PASS, TX, CardProgram
from n3ic.exporters.xdp.card.verify import check_frame, verify_card
from n3ic.exporters.xdp.libbpf import BpfError
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.model.random_models import random_model

pytest.importorskip("scipy", reason="needs n3ic[card]")


@pytest.fixture(name="folder", scope="module")
def folder_fixture(tmp_path_factory):
    """Networks of three shapes and two depths; b shunts."""
    folder = tmp_path_factory.mktemp("models")
    for name, shape in (
        ("a", (20, 8, 2)),
        ("b", (20, 8, 2)),
        ("c", (77, 16, 3)),
        ("d", (20, 8, 4, 2)),
    ):
        model = random_model(shape, np.random.default_rng(ord(name)))
        model = replace(model, shunt=3) if name == "b" else model
        model.save(folder / f"{name}.n3ic")
    return folder


@pytest.fixture(name="image", scope="module")
def image_fixture(folder):
    return image_of(software_card(cards.plan(folder, cards.alone("xdp", "abc")), "xdp"))


@pytest.fixture(name="program")
def program_fixture(image, tmp_path):
    write_card(image, tmp_path)
    try:
        with CardProgram(tmp_path) as program:
            program.send(bytes(64))
            yield program
    except (BpfError, MissingDependencyError) as error:
        pytest.skip(f"the kernel runs no programs here: {error}")


@pytest.mark.parametrize(
    ("carrier", "policy"),
    [
        ("header", ""),
        ("vlan", '{ action = "drop", classes = ["class1"], margin = 2, below = 6 }'),
        ("udp-port", '{ action = "forward", classes = ["class0"] }, { action = "drop" }'),
    ],
)
def test_every_network_runs_through_the_joint_program(folder, tmp_path, carrier, policy):
    plan = cards.plan(folder, cards.alone("xdp", "abc", carrier=carrier, policy=policy))
    done = export_card(plan, tmp_path / "out", packets=30)
    if done.missing:
        pytest.skip(done.missing)
    assert done.check is not None
    assert done.check.graphs == {f"{name}/g": 30 for name in "abc"}


def test_a_wrong_weight_is_found(image, program, tmp_path):
    path = tmp_path / "networks" / "1.bin"
    value = bytearray(path.read_bytes())
    other = random_model((20, 8, 2), np.random.default_rng(99))
    path.write_bytes(value[:32] + value_bytes(image.structure, other)[32:])  # under its name
    with pytest.raises(VerifyError, match="b/g"):
        verify_card(image, tmp_path, 20)


def test_a_tenant_comes_and_goes_while_others_frames_are_answered(image, program):
    card = image.card
    asked = traffic(card, 6)
    new = random_model((20, 8, 2), np.random.default_rng(5))
    for index in range(3):
        program.set_tenant(index, tenant_value(1 << 40, 1 << 40))

    def check(model, action=TX):
        for each in asked:
            graph, seen = card.graphs[each.graph], program.send(each.frame)
            if graph.name != "b/g":
                check_frame(card, each, seen)
                continue
            assert seen.result == action
            if action == TX:
                field = each.frame[card.offset :][: graph.input_bytes]
                (_, result), *_ = results_of(model, words_of(graph.branches[0], [field]))
                assert seen.data[card.result_at :][:10] == joined(graph, [result])[0].text

    check(card.networks["b/net"])
    program.set_network(image.slots["b/net"], value_bytes(image.structure, new))
    check(new)
    program.set_graph(4, None)
    check(None, PASS)
    program.set_graph(4, image.graph_value(card.graphs[1]))
    check(new)
    assert program.counters(0) == program.counters(2)
    assert program.counters(0)["answered"] == 24 and program.counters(1)["answered"] == 18


def test_a_tenant_that_floods_takes_from_its_own_bucket_alone(image, program):
    """A byte a second: what is in the buckets is what passes."""
    card = image.card
    mine, theirs = (next(a for a in traffic(card, 2) if a.graph == g) for g in (0, 1))
    program.set_tenant(0, tenant_value(1, 3 * len(mine.frame)))
    program.set_tenant(1, tenant_value(1, 5 * len(theirs.frame)))
    flood = [program.send(theirs.frame).result for _ in range(50)]
    assert flood == [TX] * 5 + [DROP] * 45
    for short in (theirs.frame[: card.offset], theirs.frame[:20]):
        assert program.send(short).result == DROP
    for _ in range(3):
        check_frame(card, mine, program.send(mine.frame))
    assert program.send(mine.frame).result == DROP
    assert program.counters(0) == dict.fromkeys(program.counters(0), 0) | {
        "answered": 3,
        "throttled": 1,
    }
    assert program.counters(1) == dict.fromkeys(program.counters(1), 0) | {
        "answered": 5,
        "throttled": 45,
        "short": 2,
    }


@pytest.mark.parametrize(
    ("names", "policy", "said"),
    [
        ("ad", "", "runs all networks of a card in one program"),
        ("a", '{ action = "mirror", port = 2 }', "does not mirror them"),
        ("a", '{ action = "forward", port = 2 }', "does not forward them to a port"),
    ],
)
def test_what_xdp_does_not_carry_is_refused(folder, tmp_path, names, policy, said):
    plan = cards.plan(folder, cards.alone("xdp", names, policy=policy))
    with pytest.raises(CardError, match=said):
        export_card(plan, tmp_path / "out", verify=False)


def test_branches_are_refused(tmp_path):
    cards.models(tmp_path)
    with pytest.raises(CardError, match="give each network a graph and a UID"):
        export_card(cards.plan(tmp_path, cards.text("xdp")), tmp_path / "out", verify=False)
