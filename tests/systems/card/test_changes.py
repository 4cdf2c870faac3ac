# SPDX-License-Identifier: Apache-2.0
"""What may change on a card that runs: whose networks, and whether the new ones fit."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.systems.card.changes import change_of
from n3ic.systems.card.description import Card
from n3ic.systems.card.parser import parse_card

DOCUMENT = """
[device]
target = "host"
[[tasks]]
name = "common"
kind = "network"
model = "run"
network = "q1"
[[tenants]]
name = "alpha"
[[tenants.tasks]]
name = "q0"
kind = "network"
model = "run"
network = "q0"
[[tenants.tasks]]
name = "q1"
kind = "network"
model = "run"
network = "q1"
[[tenants.graphs]]
name = "all"
uid = 1
wants = "1 packets/s"
flow = [{ branches = [["q0"], ["q1"], ["common"]], join = "both" }]
[[tenants]]
name = "beta"
[[tenants.tasks]]
name = "bits"
kind = "input"
model = "b.n3ic"
[[tenants.tasks]]
name = "net"
kind = "network"
model = "b.n3ic"
[[tenants.graphs]]
name = "own"
uid = 2
wants = "1 packets/s"
flow = ["bits", "net"]
[[tenants.graphs]]
name = "shared"
uid = 3
wants = "1 packets/s"
flow = ["common"]
"""
SPEC = InputSpec((Field.binary("bytes", 20), Field.binary("rate", 4)))


@pytest.fixture(name="card")
def card_fixture(tmp_path) -> Card:
    for folder, first in (("run", 0), ("run2", 10)):
        (tmp_path / folder / "models").mkdir(parents=True)
        for i in range(2):
            model = random_model((24, 8, 2), np.random.default_rng(first + i))
            model.save(tmp_path / folder / "models" / f"q{i}.n3ic")
    base = random_model((24, 8, 2), np.random.default_rng(5))
    replace(base, input=SPEC).save(tmp_path / "b.n3ic")
    return parse_card(DOCUMENT, "card.toml", tmp_path)


def test_a_tenant_comes_with_its_own_networks_and_goes(card):
    come = change_of(card, "load", "alpha")
    assert (come.graphs, list(come.networks)) == (("alpha/all",), ["alpha/q0", "alpha/q1"])
    assert change_of(card, "load", "beta/shared").networks == {}  # it is not beta's alone
    gone = change_of(card, "remove", "beta")
    assert (gone.graphs, gone.networks) == (("beta/own", "beta/shared"), {})
    with pytest.raises(UsageError, match="'gamma' on the card; its graphs: alpha/all, beta/own"):
        change_of(card, "remove", "gamma")


def test_networks_are_replaced_by_those_of_their_names(card, tmp_path):
    both = change_of(card, "replace", "alpha", tmp_path / "run2")
    digests = [random_model((24, 8, 2), np.random.default_rng(10 + i)).digest for i in range(2)]
    assert [m.digest for m in both.networks.values()] == digests
    one = change_of(card, "replace", "alpha/q0", tmp_path / "run2" / "models" / "q1.n3ic")
    assert {n: m.digest for n, m in one.networks.items()} == {"alpha/q0": digests[1]}
    assert list(change_of(card, "replace", "common", tmp_path / "run2").networks) == ["common"]
    with pytest.raises(UsageError, match="holds one network, expected a run of 2: alpha/q0"):
        change_of(card, "replace", "alpha", tmp_path / "b.n3ic")
    with pytest.raises(UsageError, match="no tenant or network 'alpha/all' on the card"):
        change_of(card, "replace", "alpha/all", tmp_path / "run2")


def test_what_reads_or_answers_otherwise_is_refused(card, tmp_path):
    path = tmp_path / "new.n3ic"
    plain = random_model((24, 8, 2), np.random.default_rng(7))

    def refused(who, model, message):
        model.save(path)
        with pytest.raises(UsageError, match=message):
            change_of(card, "replace", who, path)

    refused("alpha/q0", replace(plain, classes=("class1", "class0")), "the classes class0, class1")
    refused("alpha/q0", random_model((25, 8, 2), np.random.default_rng(7)), "24 input bits")
    refused("beta/net", plain, "24 input bits of the features that packets hold")
    other = InputSpec((Field.binary("bytes", 20), Field.thermometer("rate", (1, 2, 3, 4))))
    refused("alpha/q0", replace(plain, input=other), "24 input bits of the features")
    # Behind an input stage, whether other cuts are computed is the target's to say.
    replace(plain, input=other).save(path)
    assert change_of(card, "replace", "beta/net", path).networks["beta/net"].input == other
    clamped = InputSpec((replace(plain.input.fields[0], clamp=5),))
    refused("alpha/q0", replace(plain, input=clamped), "trained on the same cuts and clamps")
