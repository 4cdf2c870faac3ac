# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants in the kernel: slots by UID, a token bucket a tenant."""

import socket
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from n3ic.errors import CardError, MissingDependencyError, UsageError, VerifyError
from n3ic.exporters.xdp.libbpf import BpfError, program_by_id, query
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.model.random_models import random_model
from n3ic.systems.card.changes import change_of
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.export import change_card, export_card
from n3ic.systems.card.frames import joined, results_of, traffic, words_of
from n3ic.systems.card.xdp.image import image_of, tenant_value, write_card
from n3ic.systems.card.xdp.program import DROP, PASS, TX, CardProgram
from n3ic.systems.card.xdp.verify import check_frame, verify_card
from tests.support import software_cards as cards

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


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("carrier", "policy"),
    [
        ("header", ""),
        ("vlan", '{ action = "drop", classes = ["class1"], margin = 2, below = 6 }'),
        ("udp-port", '{ action = "forward", classes = ["class0"] }, { action = "drop" }'),
        ("header", '{ action = "forward", classes = ["class0"], port = 2 }, { action = "drop" }'),
        ("udp-port", '{ action = "forward", port = 255, margin = 2 }'),
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


def check_frames(card, asked, send, model, action):
    """Send the frames of all graphs; those of b/g have a model's results, or another action."""
    for each in asked:
        graph, seen = card.graphs[each.graph], send(each.frame)
        if graph.name != "b/g":
            check_frame(card, each, seen)
            continue
        assert seen.result == action
        if action == TX:
            field = each.frame[card.offset :][: graph.input_bytes]
            (_, result), *_ = results_of(model, words_of(model, [field], features=False))
            assert seen.data[card.result_at :][:10] == joined(graph.join, [result])[0].text


def test_a_tenant_comes_and_goes_while_others_frames_are_answered(image, program):
    card = image.card
    asked = traffic(card, 6)
    new = random_model((20, 8, 2), np.random.default_rng(5))
    for index in range(3):
        program.set_tenant(index, tenant_value(1 << 40, 1 << 40))

    def check(model, action=TX):
        check_frames(card, asked, program.send, model, action)

    check(card.networks["b/net"])
    program.set_network(image.slots["b/net"], value_bytes(image.structure, new))
    check(new)
    program.set_graph(4, None)
    check(None, PASS)
    program.set_graph(4, image.graph_value(card.graphs[1]))
    check(new)
    assert program.counters(0) == program.counters(2)
    assert program.counters(0)["answered"] == 24 and program.counters(1)["answered"] == 18


def test_an_interface_without_ethernet_headers_is_refused(program, tun):
    for refused in (
        lambda: program.attach(tun, "generic"),
        lambda: program.attach(tun, "native"),
        lambda: program.set_port(0, tun),
    ):
        with pytest.raises(UsageError, match=f"^{tun}: its packets have no Ethernet header"):
            refused()
    assert query(socket.if_nametoindex(tun)) is None


@pytest.mark.slow
def test_a_program_on_an_interface_is_changed_by_command(folder, tmp_path, veth):
    """From another process than the one that attached it: by the interface's name alone."""
    plan = cards.plan(folder, cards.alone("xdp", "abc", wants="1e6 packets/s"))
    directory = export_card(plan, tmp_path / "card", verify=False).directory
    card = software_card(plan, "xdp")
    asked = traffic(card, 4)
    new = random_model((20, 8, 2), np.random.default_rng(5))
    new.save(tmp_path / "new.n3ic")

    def change(verb, who, model=None, interface=veth[0]):
        made = change_of(plan.card, verb, who, model)
        return change_card(plan, directory, made, interface)

    try:
        loaded = CardProgram(directory)
        loaded.attach(veth[0], "generic")
    except (BpfError, MissingDependencyError) as error:
        pytest.skip(f"the kernel runs no programs here: {error}")
    loaded.__exit__()  # it stays on the interface
    with program_by_id(query(socket.if_nametoindex(veth[0])).program_id) as program:

        def check(model, action=TX):
            send = partial(program.test_run, output=True)
            check_frames(card, asked, send, model, action)

        check(card.networks["b/net"])
        assert change("replace", "b", tmp_path / "new.n3ic").startswith(f"{veth[0]}: 1 networks")
        check(new)
        change("remove", "b/g")
        check(None, PASS)
        change("load", "b")
        check(card.networks["b/net"])
        deeper = random_model((20, 8, 4, 2), np.random.default_rng(5))
        deeper.save(tmp_path / "deeper.n3ic")
        with pytest.raises(UsageError, match="b/net: the network has 3 layers, the program 2"):
            change("replace", "b", tmp_path / "deeper.n3ic")
        check(card.networks["b/net"])
    plan = cards.plan(folder, cards.alone("xdp", "cab", wants="1e6 packets/s"))
    directory = export_card(plan, tmp_path / "other", verify=False).directory
    with pytest.raises(UsageError, match="UID 3 of its program is not that of c/g"):
        change("remove", "c")
    with pytest.raises(UsageError, match=f"{veth[1]} has no XDP program"):
        change("remove", "b", interface=veth[1])
    with pytest.raises(UsageError, match="no interface 'nowhere'"):
        change("remove", "b", interface="nowhere")


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
    ("names", "policy", "message"),
    [
        ("ad", "", "runs all networks of a card in one program"),
        ("a", '{ action = "mirror", port = 2 }', "does not mirror frames.*copy no frame"),
    ],
)
def test_what_xdp_does_not_carry_is_refused(folder, tmp_path, names, policy, message):
    plan = cards.plan(folder, cards.alone("xdp", names, policy=policy))
    with pytest.raises(CardError, match=message):
        export_card(plan, tmp_path / "out", verify=False)


def test_an_input_stage_and_a_mark_without_dscp_are_refused(folder, tmp_path):
    cards.models(tmp_path)
    with pytest.raises(CardError, match="no input stage"):
        export_card(cards.plan(tmp_path, cards.text("xdp")), tmp_path / "out", verify=False)
    plan = cards.plan(folder, cards.alone("xdp", "a", policy='{ action = "mark", mark = 8 }'))
    with pytest.raises(CardError, match='expected uid = "udp-port"'):
        export_card(plan, tmp_path / "out", verify=False)


def joining(carrier="header", joins=("both", "vote", "most-certain"), policy=""):
    return cards.joining("xdp", carrier=carrier, joins=joins, policy=policy)


@pytest.fixture(name="branches", scope="module")
def branches_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("branches")
    cards.differing_models(folder)
    return folder


MARK = '{ action = "mark", mark = 41, classes = ["class0"], margin = 2 }, { action = "drop" }'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("carrier", "policy"),
    [
        ("header", ""),
        pytest.param(
            "vlan", '{ action = "drop", classes = ["class1"], margin = 2 }', marks=pytest.mark.slow
        ),
        ("udp-port", MARK),
    ],
)
def test_branches_are_joined(branches, tmp_path, carrier, policy):
    """All joins in random order on one card, and a vote of two beside one of four."""
    joins = ("both", "vote", "most-certain", "vote")
    plan = cards.plan(branches, joining(carrier, joins, policy))
    done = export_card(plan, tmp_path / "out", packets=60)
    if done.missing:
        pytest.skip(done.missing)
    assert done.check is not None
    assert done.check.inferences == 60 * (4 + 4 + 4 + 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("join", "old", "new"),
    [
        ("both", "RESULT_BYTES * b;", "RESULT_BYTES * (RESULTS - 1 - b);"),
        ("vote", "votes > most", "votes >= most"),  # the largest class of a tie
        ("vote", "margin = most - second", "margin = most"),
        ("vote", "c <= NETWORK_CLASSES", "c < NETWORK_CLASSES"),  # the host has no vote
        ("vote", "verdict == winner", "verdict != winner"),
        ("most-certain", "[b].margin > request", "[b].margin >= request"),  # the last of a tie
        ("most-certain", "[b].margin > request", "[b].margin < request"),
        ("most-certain", "put_most_certain_first(branches);", "put_majority_first(branches);"),
    ],
)
def test_a_wrong_join_is_found(branches, tmp_path, join, old, new):
    image = image_of(software_card(cards.plan(branches, joining(joins=[join])), "xdp"))
    write_card(image, tmp_path)
    try:
        verify_card(image, tmp_path, 60)
    except MissingDependencyError as error:
        pytest.skip(f"the kernel runs no programs here: {error}")
    program = tmp_path / "card.c"
    text = program.read_text()
    assert old in text
    program.write_text(text.replace(old, new))
    with pytest.raises(VerifyError, match=join):
        verify_card(image, tmp_path, 60)


def test_a_mark_keeps_the_header_s_checksum(branches, tmp_path):
    image = image_of(
        software_card(cards.plan(branches, joining("udp-port", ["vote"], MARK)), "xdp")
    )
    write_card(image, tmp_path)
    try:
        with CardProgram(tmp_path) as program:
            program.set_tenant(0, tenant_value(1 << 40, 1 << 40))
            sent = [each.frame for each in traffic(image.card, 40)]
            seen = [program.send(frame) for frame in sent]
    except (BpfError, MissingDependencyError) as error:
        pytest.skip(f"the kernel runs no programs here: {error}")
    marked = [(a, b.data) for a, b in zip(sent, seen, strict=True) if b.result == TX]
    assert marked
    for before, after in marked:
        assert after[15] >> 2 == 41 and after[15] & 3 == before[15] & 3
        sums = [int(np.frombuffer(f[14:34], dtype=">u2").sum()) % 0xFFFF for f in (before, after)]
        assert sums[0] == sums[1]


def test_a_branch_whose_slot_is_empty_answers_nothing(branches, tmp_path):
    """And a graph is changed from one join to another while it runs."""
    image = image_of(software_card(cards.plan(branches, joining(joins=["vote"])), "xdp"))
    write_card(image, tmp_path)
    other = image_of(software_card(cards.plan(branches, joining(joins=["most-certain"])), "xdp"))
    try:
        with CardProgram(tmp_path) as program:
            program.set_tenant(0, tenant_value(1 << 40, 1 << 40))
            for card_image in (image, other):
                program.set_graph(3, card_image.graph_value(card_image.card.graphs[0]))
                for each in traffic(card_image.card, 20):
                    check_frame(card_image.card, each, program.send(each.frame))
            value = bytearray(image.graph_value(image.card.graphs[0]))
            value[20 + 8 * 2] = 60  # the third branch's slot
            frame = traffic(image.card, 1)[0].frame
            program.set_tenant(0, tenant_value(1, 2 * len(frame)))
            before = program.counters(0)
            program.set_graph(3, bytes(value))
            # Neither those that the bucket has room for nor the others spend anything of it.
            assert [program.send(frame).result for _ in range(4)] == [DROP] * 4
            assert program.counters(0) == before | {"no_model": 4}
            program.set_graph(3, image.graph_value(image.card.graphs[0]))
            assert [program.send(frame).result for _ in range(3)] == [TX, TX, DROP]
            assert program.counters(0)["throttled"] == before["throttled"] + 1
    except (BpfError, MissingDependencyError) as error:
        pytest.skip(f"the kernel runs no programs here: {error}")
