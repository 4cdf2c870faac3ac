# SPDX-License-Identifier: Apache-2.0
"""A first ``card.toml`` is one that can be read and planned; pictures are of the plan alone."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import UsageError, VerifyError
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.systems.card.description import InputStage, NetworkTask, Parallel, Rate, Series
from n3ic.systems.card.export import card_target, export_card, verify_card
from n3ic.systems.card.parser import parse_card
from n3ic.systems.card.picture import plan_figure
from n3ic.systems.card.planner import plan_card
from n3ic.systems.card.scaffold import card_text, tenant_models
from n3ic.util.pictures import write
from tests.support.pictured import overhang

WANTS = Rate(1e5, "inferences/s")


@pytest.fixture(name="place")
def place_with_runs(tmp_path):
    """A run of 17 networks, a model with an input stage of features, and a hostile name."""
    (tmp_path / "queues" / "models").mkdir(parents=True)
    for i in range(17):
        name = f"tor{i} \"'\n]"
        model = random_model((40, 8, 2), np.random.default_rng(i))
        model.save(tmp_path / "queues" / "models" / f"{name}.n3ic")
    spec = InputSpec((Field.thermometer("bytes", [10, 20, 30]), Field.binary("ttl", 8)))
    base = random_model((spec.n_bits, 8, 2), np.random.default_rng(99))
    replace(base, input=spec).save(tmp_path / "anomaly.n3ic")
    return tmp_path


@pytest.mark.slow
def test_17_queues_and_an_anomaly_network(place):
    owners = tenant_models([str(place / "queues"), f"soc={place / 'anomaly.n3ic'}"])
    text = card_text(owners, "host", folder=place, wants=WANTS)
    assert text == card_text(owners, "host", folder=place, wants=WANTS)
    card = parse_card(text, "card.toml", place)
    assert [t.name for t in card.tenants] == ["queues", "soc"]
    (queues,), (soc,) = (t.graphs for t in card.tenants)
    (step,) = queues.flow.steps
    assert isinstance(step, Parallel) and step.join == "both" and len(step.branches) == 17
    assert soc.flow == Series(("soc/input", "soc/network"))
    assert isinstance(card.tasks["soc/input"], InputStage)
    assert sorted(card.graphs) == [1, 2]
    networks = [t for t in card.tasks.values() if isinstance(t, NetworkTask)]
    assert len(networks) == 18 and all(t.model.exists() for t in networks)
    assert {t.network for t in networks if t.network} == set(owners[0].models)
    planned = plan_card(card)
    assert planned.problems == ()
    assert sum(len(r.chain) for r in planned.regions) == 19


def test_paths_are_relative_to_the_file_and_names_are_distinct(place):
    (place / "there").mkdir()
    owners = tenant_models([str(place / "anomaly.n3ic")])
    card = parse_card(card_text(owners, "host", folder=place / "there", wants=WANTS))
    assert card.tenants[0].name == "anomaly"
    network = card.tasks["anomaly/network"]
    assert isinstance(network, NetworkTask) and network.model == Path("../anomaly.n3ic")
    with pytest.raises(UsageError, match="two tenants named anomaly"):
        tenant_models([str(place / "anomaly.n3ic")] * 2)
    with pytest.raises(UsageError, match="expected PATH or NAME=PATH, got '="):
        tenant_models([f"={place / 'anomaly.n3ic'}"])
    with pytest.raises(UsageError, match="holds no model"):
        tenant_models([str(place / "there")])


@pytest.mark.first_case
@pytest.mark.parametrize("target", ["host", "netfpga", "p4", "xdp"])
def test_every_target_takes_what_is_written_for_it(place, target):
    for i in range(3, 17):
        (place / "queues" / "models" / f"tor{i} \"'\n].n3ic").unlink()
    owners = tenant_models([str(place / "queues"), f"soc={place / 'anomaly.n3ic'}"])
    text = card_text(owners, target, folder=place, wants=Rate(1e3, "inferences/s"))
    card = parse_card(text, "card.toml", place)
    assert list(card.graphs) == [1, 2]
    export_card(plan_card(card), place / "card", verify=False)
    assert (place / "card" / "plan.json").exists()


def test_a_target_without_cards_is_refused_and_those_with_them_are_named():
    with pytest.raises(UsageError, match=r"target nfp .*expected one of host, netfpga, p4, xdp"):
        card_target("nfp")


@pytest.mark.first_case
@pytest.mark.parametrize(("target", "graphs"), [("host", 1), ("p4", 2), ("xdp", 2)])
def test_networks_of_other_bits_share_no_packet_of_bits(place, target, graphs):
    """They are branches where packets hold features, of which each makes its own bits."""
    spec = InputSpec((Field.thermometer("bytes", [15, 25, 35]), Field.binary("ttl", 8)))
    other = replace(random_model((spec.n_bits, 8, 2), np.random.default_rng(98)), input=spec)
    other.save(place / "queues" / "models" / "other.n3ic")
    for path in (place / "queues" / "models").glob("tor*"):
        path.unlink()
    (place / "anomaly.n3ic").rename(place / "queues" / "models" / "one.n3ic")
    owners = tenant_models([str(place / "queues")])
    text = card_text(owners, target, folder=place, wants=Rate(1e3, "inferences/s"))
    card = parse_card(text, "card.toml", place)
    assert len(card.graphs) == graphs
    export_card(plan_card(card), place / "card", verify=False)


def test_what_a_build_made_neither_fails_verification_nor_keeps_an_export_from_being_replaced(
    place,
):
    owners = tenant_models([f"soc={place / 'anomaly.n3ic'}"])
    planned = plan_card(parse_card(card_text(owners, "host", folder=place, wants=WANTS), "", place))
    out = place / "card"
    export_card(planned, out, verify=False)
    for name in ("card-exec", "n3ic_card.o", "libn3ic_card.a"):
        (out / name).write_bytes(b"made")
    export_card(planned, out, verify=False, replace=True)
    assert not (out / "card-exec").exists()
    (out / "card-exec").write_bytes(b"made")
    (out / "mine.txt").write_text("mine")
    with pytest.raises(VerifyError, match=r"^mine\.txt: n3ic writes no such file"):
        verify_card(planned, out, 1)
    with pytest.raises(UsageError, match=r"mine\.txt"):
        export_card(planned, out, verify=False, replace=True)
    with pytest.raises(UsageError, match="is not an exported card"):
        verify_card(planned, place / "queues", 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_plan_gives_the_same_picture(two_tenants, kind):
    pytest.importorskip("matplotlib")
    planned = plan_card(two_tenants())
    first, second = io.BytesIO(), io.BytesIO()
    write(plan_figure(planned), first, kind)
    write(plan_figure(planned), second, kind)
    assert first.getvalue() == second.getvalue()
    assert len(first.getvalue()) > 5000


@pytest.mark.slow
def test_the_picture_shows_every_chain_and_tenant(two_tenants):
    pytest.importorskip("matplotlib")
    from matplotlib.text import Text

    figure = plan_figure(plan_card(two_tenants()))
    shown = [t.get_text() for t in figure.findobj(Text)]
    for label in ("region 0", "region 2", "nt1", "nt3", "u1", "u2", "units", "memory"):
        assert any(label in text for text in shown)
    assert shown.count("nt2") == shown.count("nt4") == 2
    assert "region 0: units 100 %" in shown and overhang(figure) < 0.02
