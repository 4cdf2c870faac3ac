# SPDX-License-Identifier: Apache-2.0
"""A card's program on a veth: tenants' frames at random, networks that change while others flow."""

import socket
from collections import Counter
from dataclasses import replace
from itertools import count, takewhile
from threading import Event, Thread

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.exporters.xdp import libbpf
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.meter.standard import standard_spec
from n3ic.model.random_models import random_model
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.frames import results_of, traffic, words_of
from n3ic.systems.card.xdp.image import image_of, tenant_value, write_card
from n3ic.systems.card.xdp.program import DROP, REDIRECT, TX, CardProgram
from n3ic.systems.card.xdp.verify import leaving
from tests.support import software_cards as cards
from tests.support.metering import load, network
from tests.support.wires import link, wire

pytest.importorskip("scipy", reason="needs n3ic[card]")
pytestmark = pytest.mark.usefixtures("clang", "kernel")

OPEN = tenant_value(1 << 40, 1 << 40)
POLICY = (
    '{ action = "drop", classes = ["class1"], margin = 2 }, '
    '{ action = "forward", classes = ["class0"], margin = 2, port = 7 }'
)


@pytest.fixture(name="folder", scope="module")
def folder_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, shape in (("a", (20, 8, 2)), ("b", (20, 8, 2)), ("c", (77, 16, 3))):
        random_model(shape, np.random.default_rng(ord(name))).save(folder / f"{name}.n3ic")
    return folder


@pytest.fixture(name="passing", scope="module")
def passing_fixture(clang, kernel):
    """A program that passes all: a veth sends in the driver where its peer runs one."""
    with load(network(standard_spec(packets=8)), clock="kernel") as programs:
        yield programs.object.programs["n3ic_pass"]


def image_in(folder, out, policy=""):
    document = cards.alone("xdp", "abc", policy=policy)
    image = image_of(software_card(cards.plan(folder, document), "xdp"))
    write_card(image, out)
    return image


def attach(name, program, mode):
    libbpf.attach(socket.if_nametoindex(name), program, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["native", pytest.param("generic", marks=pytest.mark.slow)])
def test_frames_are_answered_forwarded_or_dropped(folder, tmp_path, in_namespace, passing, mode):
    image = image_in(folder, tmp_path, POLICY)
    card = image.card
    asked = traffic(card, 60)
    expected = [leaving(card, each) for each in asked]
    assert {action for action, _ in expected} == {TX, REDIRECT, DROP}

    def check():
        link("n3a", "n3b")
        link("n3c", "n3d")
        with CardProgram(tmp_path) as program, wire("n3a") as client, wire("n3d") as beyond:
            with pytest.raises(UsageError, match="no interface 'n3x'"):
                program.set_port(7, "n3x")
            for index in range(3):
                program.set_tenant(index, OPEN)
            if mode == "native":
                attach("n3a", passing, mode)
                attach("n3d", passing, mode)
            program.attach("n3b", mode)
            for ready in (False, True):  # the port has an interface only then
                if ready:
                    program.set_port(7, "n3c")
                for each, (action, frame) in zip(asked, expected, strict=True):
                    client.send(each.frame)
                    if action == TX:
                        assert client.recv(4096) == frame
                    elif action == REDIRECT and ready:
                        assert beyond.recv(4096) == frame
            for silent in (client, beyond):
                silent.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    silent.recv(4096)
            for tenant in range(3):
                mine = Counter(
                    action
                    for each, (action, _) in zip(asked, expected, strict=True)
                    if card.graphs[each.graph].tenant == tenant
                )
                assert program.counters(tenant) == dict.fromkeys(program.counters(0), 0) | {
                    "answered": 2 * mine[TX],
                    "dropped": 2 * mine[DROP],
                    "forwarded": mine[REDIRECT],
                    "no_port": mine[REDIRECT],
                }

    in_namespace(check)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["native", pytest.param("generic", marks=pytest.mark.slow)])
def test_a_network_comes_and_goes_while_others_frames_flow(
    folder, tmp_path, in_namespace, passing, mode
):
    """Answers to a and c come all, in order, with the same bytes; b's are of a whole network."""
    image = image_in(folder, tmp_path)
    card = image.card
    other = random_model((20, 8, 2), np.random.default_rng(77))
    graph = card.graphs[1]
    asked = traffic(card, 40)

    def of(model, each):
        field = each.frame[card.offset :][: graph.input_bytes]
        (_, result), *_ = results_of(model, words_of(model, [field], features=False))
        return leaving(card, replace(each, results=(result,)))[1]

    theirs = [(each.frame, leaving(card, each)[1]) for each in asked if each.graph != 1]
    mine = [(e, of(card.networks["b/net"], e), of(other, e)) for e in asked if e.graph == 1]
    values = [image.value("b/net"), value_bytes(image.structure, other)]

    def change(program, over):
        """Replace the network, and take the graph away and bring it again."""
        for number in takewhile(lambda _: not over.is_set(), count()):
            program.set_network(image.slots["b/net"], values[number % 2])
            program.set_graph(4, None if number % 5 == 0 else image.graph_value(graph))

    def check():
        link("n3a", "n3b")
        with CardProgram(tmp_path) as program, wire("n3a") as client, wire("n3b") as stack:
            for index in range(3):
                program.set_tenant(index, OPEN)
            if mode == "native":
                attach("n3a", passing, mode)
            program.attach("n3b", mode)
            seen, over, rounds = Counter(old=0, new=0, gone=0), Event(), 0
            changer = Thread(target=change, args=(program, over))
            changer.start()
            while changer.is_alive() and (rounds < 10 or not all(seen.values())):
                rounds += 1
                for number, (frame, answer) in enumerate(theirs):
                    each, old, new = mine[number % len(mine)]
                    client.send(each.frame)
                    client.send(frame)
                    got = client.recv(4096)
                    if got in (old, new):
                        seen["old" if got == old else "new"] += 1
                        got = client.recv(4096)
                    else:
                        seen["gone"] += 1  # the graph of b: the stack has the frame
                    assert got == answer
            over.set()
            changer.join()
            assert all(seen.values()), seen
            counted = [program.counters(tenant) for tenant in range(4)]
            assert counted[0]["answered"] + counted[2]["answered"] == rounds * len(theirs)
            assert counted[1]["answered"] == seen["old"] + seen["new"]
            assert counted[3]["unknown"] == seen["gone"]
            assert stack.recv(4096) in {each.frame for each, _, _ in mine}

    in_namespace(check)
