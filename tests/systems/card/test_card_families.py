# SPDX-License-Identifier: Apache-2.0
"""Models of every family on one card, or a refusal by target, task and family."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from n3ic import plugins
from n3ic.errors import CardError, UsageError, VerifyError
from n3ic.model.classifier import margins_of
from n3ic.model.family import family
from n3ic.model.simplified import unchanged
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.export import export_card
from n3ic.systems.card.frames import traffic
from n3ic.systems.card.host.changes import change_running
from n3ic.systems.card.host.verify import verify_card
from n3ic.systems.card.parser import parse_card
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.planner import plan_card
from tests.support.family_models import FAMILIES, metered_model, small_model
from tests.support.random_graphs import graph_family, layered_model
from tests.support.xdp_machine import clang, kernel

__all__ = ["clang", "kernel"]

pytest.importorskip("scipy", reason="needs n3ic[card]")
pytestmark = pytest.mark.usefixtures("quick_build")
TENANT = """
[[tenants]]
name = "{name}"
[[tenants.tasks]]
name = "net"
kind = "network"
model = "{name}.n3ic"
{input}
[[tenants.graphs]]
name = "g"
uid = {uid}
wants = "1000 packets/s"
flow = [{flow}]
"""
INPUT = """
[[tenants.tasks]]
name = "input"
kind = "input"
model = "{name}.n3ic"
"""


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with graph_family():
        yield


def card(folder: Path, target: str, families: tuple[str, ...], *, features: bool) -> CardPlan:
    """A card with a tenant for each family, whose packets hold features or input bits."""
    text = f'name = "lab"\n[device]\ntarget = "{target}"\n'
    for uid, name in enumerate(families, 1):
        model = metered_model(name, seed=uid)  # its meter's cache of flows is not on the card
        words = family(name).vectors(unchanged(model), 60, 0)
        shunt = max(1, int(np.median(margins_of(model.scores(words)))))
        model.with_shunt(shunt if uid % 2 else 0).save(folder / f"{name}.n3ic")
        text += TENANT.format(
            name=name,
            uid=uid,
            input=INPUT.format(name=name) if features else "",
            flow='"input", "net"' if features else '"net"',
        )
    return plan_card(parse_card(text, "card.toml", folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    "features", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["bits", "features"]
)
def test_a_host_card_computes_all_families_in_one_process(tmp_path: Path, features: bool) -> None:
    plan = card(tmp_path, "host", FAMILIES, features=features)
    costs = plan.costs
    assert all(costs[f"{name}/net"].needs["cycles"].value > 0 for name in FAMILIES)
    assert all(0 < costs[f"{name}/net"].needs["l2"].value < 1 << 16 for name in FAMILIES)
    done = export_card(plan, tmp_path / "out", packets=20)
    assert done.check is not None and not done.missing
    assert set(done.check.graphs) == {f"{name}/g" for name in FAMILIES}
    again = export_card(plan, tmp_path / "again", verify=False).directory
    for path in filter(Path.is_file, again.rglob("*")):
        assert path.read_bytes() == (tmp_path / "out" / path.relative_to(again)).read_bytes()


@pytest.mark.slow
def test_a_card_loads_layers_of_any_family_as_a_network(tmp_path: Path) -> None:
    layered_model(3, (9, 6), classes=2).save(tmp_path / "layers.n3ic")
    text = TENANT.format(name="layers", uid=1, input="", flow='"net"')
    for target in ("host", "p4"):
        plan = plan_card(
            parse_card(f'name = "lab"\n[device]\ntarget = "{target}"\n{text}', "c", tmp_path)
        )
        done = export_card(plan, tmp_path / target, packets=20)
        assert done.check is not None and not done.missing
        assert set(done.check.graphs) == {"layers/g"}


@pytest.mark.slow
def test_a_wrong_network_that_is_compiled_in_is_found(tmp_path: Path) -> None:
    plan = card(tmp_path, "host", ("decision-trees", "look-up-tables"), features=False)
    out = export_card(plan, tmp_path / "out", verify=False).directory
    trees = small_model("decision-trees", seed=1)
    bias = trees.bias + 1  # type: ignore[attr-defined]
    trees.changed(bias=bias, shunt=0).save(tmp_path / "decision-trees.n3ic")
    expected = software_card(plan_card(plan.card), "host")
    with pytest.raises(VerifyError, match="decision-trees/g: scores"):
        verify_card(expected, out, 5)


@pytest.mark.slow  # builds the card with make
def test_networks_that_are_compiled_in_leave_and_return_while_frames_flow(tmp_path: Path) -> None:
    names = ("binary-network", "decision-trees")
    plan = card(tmp_path, "host", names, features=False)
    out = export_card(plan, tmp_path / "out", verify=False).directory
    done = subprocess.run(
        ["make", "-C", out, "CFLAGS=-O1 -Werror"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    fifo = tmp_path / "control"
    os.mkfifo(fifo)
    running = subprocess.Popen(
        [out / "card-exec", "-c", fifo], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        soft = software_card(plan, "host")
        model = soft.networks["decision-trees/net"]
        networks = {"decision-trees/net": model}
        graphs = ("decision-trees/g",)
        assert "1 networks" in change_running(soft, CardChange("remove", graphs, {}), fifo)
        assert "1 networks" in change_running(soft, CardChange("load", graphs, networks), fifo)
        other = small_model("decision-trees", seed=5)
        wrong = CardChange("replace", (), {"decision-trees/net": other})
        with pytest.raises(UsageError, match=r"compiled into the card.*export the card again"):
            change_running(soft, wrong, fifo)
        assert running.stdin is not None
        frames = (out / "frames.pcap").read_bytes()
        threading.Thread(
            target=lambda: (running.stdin.write(frames), running.stdin.close())
        ).start()  # type: ignore[union-attr]
        assert running.wait(600) == 0
        counted = running.stderr.read().decode()  # type: ignore[union-attr]
        assert f"decision-trees,{3},{3}," in counted
    finally:
        running.kill()
        running.wait()


@pytest.mark.first_case
@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "binary-network"])
def test_frames_of_a_card_hold_inputs_that_features_can_have(tmp_path: Path, name: str) -> None:
    soft = software_card(card(tmp_path, "host", (name,), features=False), "host")
    spec = soft.networks[f"{name}/net"].input
    fields = [r.frame[soft.offset :][: soft.graphs[0].input_bytes] for r in traffic(soft, 60)]
    bits = np.stack(
        [
            np.unpackbits(np.frombuffer(f[::-1], np.uint8), count=spec.n_bits, bitorder="little")
            for f in fields
        ]
    ).astype(bool)
    assert np.array_equal(spec.ordered(bits), bits)


@pytest.mark.parametrize("target", ["p4", "netfpga"])
@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "binary-network"])
def test_a_card_that_computes_binary_networks_refuses_others(
    tmp_path: Path, target: str, name: str
) -> None:
    others = "set target host or xdp in"
    with pytest.raises(CardError, match=rf"card.toml:\d+: task .*got {name}: {others}"):
        card(tmp_path, target, (name,), features=False)


@pytest.mark.first_case
@pytest.mark.parametrize("name", FAMILIES)
def test_a_card_in_the_kernel_computes_the_family(
    tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    if name == "sum-product-network":
        with pytest.raises(CardError, match="this target writes no log-add"):
            card(tmp_path, "xdp", (name,), features=False)
        return
    for machine in ("clang", "kernel"):
        request.getfixturevalue(machine)
    done = export_card(card(tmp_path, "xdp", (name,), features=False), tmp_path / "out", packets=30)
    assert done.check is not None and not done.missing


def test_families_of_one_kernel_program_are_one(tmp_path: Path) -> None:
    plan = card(tmp_path, "xdp", ("decision-trees", "look-up-tables"), features=False)
    with pytest.raises(CardError, match="must be of one family, these are of decision-trees and"):
        export_card(plan, tmp_path / "out", verify=False)


def test_the_matrix_names_every_installed_family() -> None:
    assert {*plugins.names(plugins.FAMILIES)} <= {*FAMILIES}
