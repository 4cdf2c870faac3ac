# SPDX-License-Identifier: Apache-2.0
"""The 17 tomography networks and the anomaly network; a third tenant comes and goes beside them."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.systems.card.changes import change_of
from n3ic.systems.card.description import Rate
from n3ic.systems.card.export import change_card, export_card
from n3ic.systems.card.frames import words_of
from n3ic.systems.card.netfpga import control, simulation
from n3ic.systems.card.netfpga.bounds import added_latency
from n3ic.systems.card.netfpga.target import CARDS
from n3ic.systems.card.netfpga.traffic import outcome, result_of
from n3ic.systems.card.parser import parse_card
from n3ic.systems.card.planner import plan_card
from n3ic.systems.card.scaffold import card_text, tenant_models
from tests.support import small_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("verilator") is None, reason="needs verilator"),
]
NEEDS = """kind = "network"
needs = { lut_sites = 580, ff = 1250, bram36 = 4 }
rate = "1.8e6 inferences/s"
latency_ns = 500"""
PACKETS = 60
GAP = 800  # clocks: a packet of the 17 networks takes 621
COMES, GOES = 12, 45  # packets that were sent before
RECONFIGURATION = 5000  # clocks; 5 ms are a million, in which nothing else would happen


@pytest.mark.exhaustive
def test_a_third_tenant_comes_and_goes(tmp_path: Path) -> None:
    """None of the two tenants' packets is lost, reordered, changed, or delayed beyond the bound."""
    (tmp_path / "tomography" / "models").mkdir(parents=True)
    for i in range(17):
        path = tmp_path / "tomography" / "models" / f"q{i:02}.n3ic"
        cards.net((152, 32, 16, 2), i).save(path)
    cards.net((256, 32, 16, 2), 99).save(tmp_path / "soc.n3ic")
    cards.net((128, 32, 16, 2), 77).save(tmp_path / "lab.n3ic")
    new = cards.net((128, 32, 16, 2), 78)
    new.save(tmp_path / "new.n3ic")
    sources = [str(tmp_path / name) for name in ("tomography", "soc.n3ic", "lab.n3ic")]
    text = card_text(
        tenant_models(sources), "netfpga", folder=tmp_path, wants=Rate(1e5, "inferences/s")
    )
    # What a network takes is stated, so that planning simulates none of them.
    plan = plan_card(parse_card(text.replace('kind = "network"', NEEDS), "card.toml", tmp_path))
    directory = export_card(plan, tmp_path / "card", verify=False).directory
    image = CARDS.card_image(plan)
    assert sum(len(core.models) for core in image.cores) == 19

    def change(verb: str, model: Path | None, name: str) -> list[simulation.Operation]:
        made = change_of(plan.card, verb, "lab", model)  # type: ignore[arg-type]
        change_card(plan, directory, made, str(tmp_path / name))
        whole = simulation.wait_clocks(
            round(control.RECONFIGURATION_SECONDS * EXPORTER.device.clock_mhz * 1e6)
        )
        short = simulation.wait_clocks(RECONFIGURATION)
        return [short if op == whole else op for op in cards.read_change(tmp_path / name)]

    closed = change("remove", None, "first")
    program = [
        *closed,
        simulation.wait_sent(COMES),
        *change("load", tmp_path / "new.n3ic", "comes"),
        simulation.wait_sent(GOES),
        *change("remove", None, "goes"),
    ]
    rng = np.random.default_rng(4)
    order = rng.permutation(np.arange(PACKETS) % 3).tolist()
    packets = [cards.ask(image, graph, rng, gap=GAP) for graph in order]
    quiet, log = (
        simulation.run(directory, image, packets, each, trace=False, simulator="verilator")
        for each in (closed, program)
    )

    seen = {p.number: p.data for p in log.departures}
    assert len(seen) == len(packets) == len(log.departures)
    for tenant in range(2):
        mine = [n for n, graph in enumerate(order) if graph == tenant]
        assert [p.number for p in log.departures if p.number in mine] == mine
        assert all(seen[n] == outcome(image, packets[n]).data for n in mine)
        assert log.counters[tenant] == quiet.counters[tenant]
        assert log.counters[tenant]["left"] == len(mine)
        pairs = zip(quiet.latencies(mine), log.latencies(mine), strict=True)
        assert max(after - before for before, after in pairs) <= added_latency(
            image, image.graphs[tenant], longest=max(p.frame.beats for p in packets)
        )
    answered = []
    for n in (n for n, graph in enumerate(order) if graph == 2):
        words = words_of(new, [packets[n].frame.data[image.offset :]], features=False)
        answered.append(seen[n] == outcome(image, packets[n], [result_of(new, words)]).data)
        assert answered[-1] or seen[n] == packets[n].frame.data  # closed: as it came
    first, last = answered.index(True), len(answered) - answered[::-1].index(True)
    assert 0 < first < last < len(answered) and all(answered[first:last])
    assert log.counters[2]["left"] == sum(answered)
