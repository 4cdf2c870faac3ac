# SPDX-License-Identifier: Apache-2.0
"""What the models of a card must have in common."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import CardError
from n3ic.model.random_models import random_model
from n3ic.systems.card.models import check_models
from n3ic.systems.card.parser import parse_card

TASK = """
[[tenants.tasks]]
name = "{name}"
kind = "network"
model = "{name}.n3ic"
"""


def card(folder, join, rule):
    """Branches of two networks, the second of which numbers its classes otherwise."""
    model = random_model((24, 8, 2), np.random.default_rng(1))
    replace(model, classes=("benign", "attack")).save(folder / "a.n3ic")
    replace(model, classes=("attack", "benign")).save(folder / "b.n3ic")
    policy = f'[[tenants.tasks]]\nname = "act"\nkind = "policy"\nrules = [{rule}]\n'
    return parse_card(
        f"""[device]
target = "host"
[[tenants]]
name = "soc"
{TASK.format(name="a")}{TASK.format(name="b")}{policy}
[[tenants.graphs]]
name = "both"
uid = 1
wants = "1 packets/s"
flow = [{{ branches = [["a"], ["b"]], join = "{join}" }}, "act"]
""",
        "c.toml",
        folder,
    )


@pytest.mark.parametrize(
    ("join", "rule", "message"),
    [
        ("vote", '{ action = "drop" }', "join 'vote' compares classes"),
        ("most-certain", '{ action = "drop", classes = ["attack"] }', "has rules about classes"),
    ],
)
def test_one_result_of_networks_that_number_classes_otherwise_is_refused(
    tmp_path, join, rule, message
):
    with pytest.raises(CardError, match=message) as caught:
        check_models(card(tmp_path, join, rule))
    assert str(caught.value).startswith("c.toml:20: graph 'both': ")
    assert "'soc/a' has benign, attack, 'soc/b' has attack, benign" in str(caught.value)


@pytest.mark.parametrize(
    ("join", "rule"),
    [
        ("most-certain", '{ action = "drop", margin = 3 }'),
        ("both", '{ action = "drop", classes = ["attack"] }'),  # about the first one's result
    ],
)
def test_results_that_say_their_network_are_taken(tmp_path, join, rule):
    check_models(card(tmp_path, join, rule))
