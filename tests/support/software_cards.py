# SPDX-License-Identifier: Apache-2.0
"""Cards of two tenants for software targets: branches that vote, features, a policy."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.systems.card.parser import parse_card
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.planner import plan_card

TASK = """
[[tenants.tasks]]
name = "{name}"
kind = "{kind}"
model = "{model}.n3ic"
"""
GUARD = """
[[tenants.tasks]]
name = "guard"
kind = "policy"
rules = [{ action = "drop", classes = ["class1"], margin = 1 }]
"""
VERILOG = """kind = "verilog"
sources = ["mine.v"]
top = "mine"
needs = {}
rate = "1e6 packets/s"
"""


def models(folder: Path, shape: tuple[int, ...] = (45, 16, 8, 3)) -> None:
    """Three networks of one shape, and one of two features."""
    for seed in range(3):
        random_model(shape, np.random.default_rng(seed)).save(folder / f"a{seed}.n3ic")
    spec = InputSpec(
        (Field.binary("bytes", 20), Field("rate", "thermometer", 3, 1000, cuts=(3, 70, 900)))
    )
    model = replace(random_model((23, 8, 2), np.random.default_rng(9)), input=spec)
    model.save(folder / "b.n3ic")


def text(target: str, *, join: str = "vote", carrier: str = "header", beta: str = "") -> str:
    """Two tenants: alpha's three networks read one packet, beta has one of its own."""
    alpha = "".join(TASK.format(name=f"a{i}", kind="network", model=f"a{i}") for i in range(3))
    own = TASK.format(name="input", kind="input", model="b") + TASK.format(
        name="b", kind="network", model="b"
    )
    return f"""
name = "lab"
[device]
target = "{target}"
uid = "{carrier}"
[[tenants]]
name = "alpha"
{alpha}
[[tenants.graphs]]
name = "paths"
uid = 7
wants = "100000 packets/s"
flow = [{{ join = "{join}", branches = [["a0"], ["a1"], ["a2"]] }}]
[[tenants]]
name = "beta"
{own}
{GUARD if not beta or "guard" in beta else ""}
[[tenants.graphs]]
name = "attacks"
uid = 9
wants = "200000 packets/s"
flow = [{beta or '"input", "b", "guard"'}]
"""


def plan(folder: Path, document: str) -> CardPlan:
    """The plan of a card whose models lie in a folder."""
    return plan_card(parse_card(document, "card.toml", folder))


def alone(
    target: str,
    names: str,
    *,
    carrier: str = "header",
    policy: str = "",
    wants: str = "1000 packets/s",
) -> str:
    """A tenant a letter, each with the network of that name and a UID from 3 on."""
    out = f'[device]\ntarget = "{target}"\nuid = "{carrier}"\n'
    for uid, name in enumerate(names, start=3):
        guard = '[[tenants.tasks]]\nname = "guard"\nkind = "policy"\n' + f"rules = [{policy}]\n"
        out += f"""
[[tenants]]
name = "{name}"
{TASK.format(name="net", kind="network", model=name)}
{guard if policy else ""}
[[tenants.graphs]]
name = "g"
uid = {uid}
wants = "{wants}"
flow = ["net"{', "guard"' if policy else ""}]
"""
    return out


def differing_models(folder: Path) -> None:
    """Networks of other widths and input bits in as many bytes; q and s shunt."""
    for name, shape in (
        ("p", (20, 8, 2)),
        ("q", (20, 16, 2)),
        ("r", (23, 8, 2)),
        ("s", (20, 8, 2)),
    ):
        model = random_model(shape, np.random.default_rng(ord(name)))
        model = replace(model, shunt=3) if name in "qs" else model
        model.save(folder / f"{name}.n3ic")


def joining(
    target: str,
    *,
    carrier: str = "header",
    joins: Sequence[str] = ("both", "vote", "most-certain"),
    policy: str = "",
) -> str:
    """A tenant a join, each with four networks of two classes; votes and margins often tie.

    The fourth has two.
    """
    out = f'[device]\ntarget = "{target}"\nuid = "{carrier}"\n'
    for uid, join in enumerate(joins, start=3):
        out += f'[[tenants]]\nname = "t{uid}"\n'
        names = "pq" if uid == 6 else "pqrs"
        out += "".join(TASK.format(name=n, kind="network", model=n) for n in names)
        guard = '[[tenants.tasks]]\nname = "guard"\nkind = "policy"\n' + f"rules = [{policy}]\n"
        branches = ", ".join(f'["{n}"]' for n in names)
        out += f"""
{guard if policy else ""}
[[tenants.graphs]]
name = "{join}"
uid = {uid}
wants = "1000 packets/s"
flow = [{{ join = "{join}", branches = [{branches}] }}{', "guard"' if policy else ""}]
"""
    return out
