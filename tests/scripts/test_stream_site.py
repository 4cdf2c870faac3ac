# SPDX-License-Identifier: Apache-2.0
"""Load and queues of a site of many cards."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from n3ic.errors import DataError, UsageError
from scripts.stream_site.__main__ import main
from scripts.stream_site.arithmetic import bottleneck, loads
from scripts.stream_site.description import DEFAULT, Site, SiteStage, SiteTraffic, read_site
from scripts.stream_site.simulation import Outage, SiteRun, Surge, simulate

TRAFFIC = SiteTraffic(
    cards=10,
    flows=10_000,
    day=0.5,
    shunted=0.1,
    recorded=0.2,
    record=100,
    captures=86.4e9,
    packet=500,
    labels=1,
)


def _stage(name: str, takes: str, capacity: float, servers: int, room: int | None = None):
    return SiteStage(name, takes, capacity, servers, "estimated", "assumed", room)


def _conserved(run: SiteRun):
    assert run.stages[0].arrived == run.sent
    for one, following in zip(run.stages, run.stages[1:], strict=False):
        assert one.arrived - one.lost == following.arrived
    assert run.stages[-1].arrived - run.stages[-1].lost == run.done


def test_loads_by_hand():
    """The busiest hour has twice the day's mean, so 1 MB/s of captures become 2."""
    stages = (
        _stage("a", "shunted", 5_000, 4),  # 10,000 flows/s
        _stage("b", "record bytes", 1e6, 8),  # 20,000 records/s of 100 bytes
        _stage("c", "capture bytes", 1e6, 2),
        _stage("d", "capture packets", 1_000, 1),
        _stage("e", "decided", 1e6, 1),
        _stage("f", "recorded", 1e6, 1),
        _stage("g", "labels", 4, 1),
    )
    stage_loads = loads(Site(TRAFFIC, stages))
    assert [one.load for one in stage_loads] == [10_000, 2e6, 2e6, 4_000, 100_000, 20_000, 1]
    assert [one.utilisation for one in stage_loads] == [0.5, 0.25, 1, 4, 0.1, 0.02, 0.25]
    # Servers that are 70 % busy: 10,000 / 3,500, and so on.
    assert [one.needed for one in stage_loads] == [3, 3, 3, 6, 1, 1, 1]
    assert bottleneck(stage_loads).stage.name == "d"


@pytest.mark.first_case
@pytest.mark.parametrize("busy", [0.5, 0.8])
def test_one_server_waits_as_the_formula_says(busy: float):
    """Poisson arrivals at one server of constant time: Pollaczek and Khinchine's mean wait."""
    capacity = TRAFFIC.rate("shunted") / busy
    site = Site(TRAFFIC, (_stage("s", "shunted", capacity, 1, 10**9),))
    run = simulate(site, seconds=120, batch=100, seed=1)
    service = 100 / capacity
    mean = busy * service / (2 * (1 - busy))
    _conserved(run)
    assert run.done == run.sent
    assert run.latency[0] == pytest.approx(mean + service, rel=0.05)


def test_what_finds_no_room_is_lost_where_it_was():
    """Of two batches a server's time, one passes; the queue never exceeds its room."""
    stages = (
        _stage("wide", "shunted", 1e6, 10, 10_000),
        _stage("narrow", "recorded", 10_000, 1, 2_000),  # 20,000 arrive per second
    )
    run = simulate(Site(TRAFFIC, stages), seconds=20, batch=100)
    _conserved(run)
    wide, narrow = run.stages
    assert wide.lost == 0
    assert narrow.lost / narrow.arrived == pytest.approx(0.5, abs=0.02)
    assert narrow.longest <= 2_000
    assert run.latency[3] <= 2_000 / 10_000 + 0.1


def test_a_server_that_stands_still_delays_its_own_cards_alone():
    """Two servers, of which one stands still for a second."""
    site = Site(TRAFFIC, (_stage("s", "shunted", 50_000, 2, 10**9),))
    calm = simulate(site, seconds=4, seed=3)
    down = simulate(site, seconds=4, seed=3, outages=(Outage("s", 1.0, 1.0),))
    _conserved(down)
    assert down.done == calm.done == calm.sent
    assert calm.latency[3] < 0.1
    assert 0.9 < down.latency[3] < 1.3
    assert down.latency[1] < 0.01
    full = replace(site, stages=(replace(site.stages[0], room=1_000),))
    lost = simulate(full, seconds=4, seed=3, outages=(Outage("s", 1.0, 1.0),))
    _conserved(lost)
    assert 0.05 < lost.stages[0].lost / lost.sent < 0.15  # a quarter of the time, half of the cards


def test_a_surge_adds_its_flows():
    """Half of the cards at four times their rate for half of the time: 1.75 times the flows."""
    site = Site(TRAFFIC, (_stage("s", "shunted", 1e6, 1, 10**9),))
    calm = simulate(site, seconds=4, batch=10)
    more = simulate(site, seconds=4, batch=10, surge=Surge(4, 0.5, 1, 2))
    assert more.sent / calm.sent == pytest.approx(1.75, rel=0.02)
    assert more == simulate(site, seconds=4, batch=10, surge=Surge(4, 0.5, 1, 2))


def test_requests_that_cannot_be_simulated():
    """Each is refused with what was expected."""
    site = Site(TRAFFIC, (_stage("s", "shunted", 1e6, 1, 10**9),))
    with pytest.raises(UsageError, match="2,000,000 batches"):
        simulate(site, seconds=1e6)
    with pytest.raises(UsageError, match="expected one of s, got 't'"):
        simulate(site, outages=(Outage("t", 0, 1),))
    with pytest.raises(UsageError, match="with a room"):
        simulate(Site(TRAFFIC, (_stage("s", "shunted", 1e6, 1),)))
    surge = Surge(100, 1, 0, 10)
    with pytest.raises(UsageError, match=rf"batches, got {TRAFFIC.rate('shunted') * 1000:,.0f};"):
        simulate(site, seconds=10, batch=1, surge=surge)
    with pytest.raises(UsageError, match="batches, got 0"):
        simulate(replace(site, traffic=replace(TRAFFIC, shunted=0.0)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("cards = 1000", "cards = 0"), "cards from 1"),
        (("cards = 1000", "cards = 1000\nhosts = 3"), "hosts"),
        (("shunted = 0.05", "shunted = 1.5"), "shares from 0 to 1"),
        (("day = 0.4", "day = 0"), "day above 0"),
        (('takes = "shunted"', 'takes = "all"'), "takes"),
        (("capacity = 45_000", "capacity = 0"), "host: second stage: capacity above 0"),
        (("capacity = 45_000", "capacity = nan"), "finite"),
        (('name = "labels: joined"', 'name = "captures: meter"'), "different names"),
        (("packet = 800", "packet = [800]"), "packet"),
        (("[traffic]", "[[traffic]]"), "traffic"),
        (("[traffic]", "[traffic"), "line"),
    ],
)
def test_a_description_that_is_wrong_is_refused(
    change: tuple[str, str], message: str, tmp_path: Path
):
    """The error names what was expected."""
    text = DEFAULT.read_text(encoding="utf-8")
    assert change[0] in text
    file = tmp_path / "site.toml"
    file.write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_site(file)


@pytest.fixture
def script(monkeypatch, capsys):
    """Run the script in this process; give how it ended and what it printed."""

    def run(*words: str):
        monkeypatch.setattr(sys, "argv", ["stream_site", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().out

    return run


def test_the_script(script):
    """The default site as a table and as JSON; wrong options end with a message."""
    code, text = script()
    assert not code and "bottleneck: reservoir: consumer" in text
    words = ["--simulate", "--seconds", "0.1", "--surge", "20,0.1,0.02,0.03", "--json", "--down"]
    code, text = script(*words, "topic: partition=0.02,0.02")
    document = json.loads(text)
    assert not code and document["simulated"]["sent"] > 50_000
    path = ["host: second stage", "topic: partition", "reservoir: consumer"]
    assert [s["name"] for s in document["simulated"]["stages"]] == path
    for wrong, message in (
        ("--surge 2,0.1,0,1", "expected with --simulate"),
        ("--simulate --surge x", "expected 4 numbers"),
        ("--simulate --surge 0.5,0.1,0,1", "expected a factor of 1 or more"),
        ("--simulate --down topic", "expected STAGE=START,SECONDS"),
        ("--simulate --down topic=1", "expected 2 numbers"),
        ("--measure --simulate", "expected without"),
        ("--site absent.toml", "absent.toml"),
    ):
        code, _ = script(*wrong.split())
        assert code.startswith("stream_site: ") and message in code
