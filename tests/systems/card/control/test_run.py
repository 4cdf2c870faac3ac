# SPDX-License-Identifier: Apache-2.0
"""A card of the host target under the control loop, in virtual time and as it is typed."""

import json
import struct
from contextlib import closing

import pytest

import n3ic
from n3ic.errors import ArgumentError, DataError, MissingDependencyError, UsageError, VerifyError
from n3ic.systems.card.compile import frame_lengths, software_card
from n3ic.systems.card.control import run
from n3ic.systems.card.export import export_card, open_card
from n3ic.systems.card.frames import traffic
from n3ic.systems.card.host.driver import HostDriver
from n3ic.systems.card.host.library import CardLibrary
from n3ic.systems.card.host.verify import shape_of
from n3ic.systems.card.planned_scenario import scenario_under
from n3ic.systems.card.xdp.image import changed_tenant, tenant_value
from n3ic.targets.fuzz_traffic import pcap
from tests.support import software_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")
pytestmark = pytest.mark.usefixtures("quick_build")
SIZE = 64  # bytes of a frame, as the plan takes them to be
WANTED = {"alpha": 100_000, "beta": 200_000}  # packets a second, as the card's text says
COUNTED = ("admitted", "answered", "beyond", "absent")


@pytest.fixture(name="folder", scope="module")
def folder_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card")
    cards.models(folder)
    (folder / "card.toml").write_text(cards.text("host"))
    export_card(cards.plan(folder, cards.text("host")), folder / "card", verify=False)
    return folder


@pytest.fixture(name="plan", scope="module")
def plan_fixture(folder):
    return cards.plan(folder, cards.text("host"))


@pytest.fixture(name="card", scope="module")
def card_fixture(plan):
    return software_card(plan, "host")


@pytest.fixture(name="library", scope="module")
def library_fixture(folder, card):
    return CardLibrary(folder / "card", shape_of(card))


@pytest.fixture(name="driver")
def driver_fixture(plan, card, library):
    """A card that computes when its answers are taken."""
    return HostDriver(card, library, frame_lengths(plan, card), threads=0)


def frames_of(card):
    """A frame of each tenant."""
    names = [card.tenants[g.tenant].name for g in card.graphs]
    return {names[r.graph]: r.frame.ljust(SIZE, b"\0") for r in traffic(card, 1)}


def steady(card, seconds, **rates):
    """Frames of tenants at equal distances, not in the middle of a window's border."""
    frames = frames_of(card)
    return sorted(
        ((i + 0.5) / rate, frames[tenant])
        for tenant, rate in rates.items()
        for i in range(int(rate * seconds))
    )


def in_virtual_time(plan, driver, frames, seconds, *events):
    """Run a card as fast as it goes."""
    now = 0.0

    def wait(until):
        nonlocal now
        now = max(now, until)
        return now

    scenario = driver.fitted(scenario_under(plan, seconds, (), events))
    return run.run_card(scenario, driver, frames, wait)


def test_a_load_within_the_guarantees_is_answered(plan, card, driver):
    scenario = driver.fitted(scenario_under(plan, 0.02, ("poisson", "alpha=constant*0.5"), ()))
    done = in_virtual_time(plan, driver, run.generated(scenario, driver.requests(16), 3), 0.02)
    assert done.sent == sum(counts["admitted"] for counts in done.counters.values())
    assert done.counters["alpha"]["admitted"] == pytest.approx(0.01 * WANTED["alpha"], abs=1)
    assert done.counters["beta"]["admitted"] == pytest.approx(0.02 * WANTED["beta"], rel=0.05)
    for tenant, counts in done.counters.items():
        assert counts["answered"] == counts["admitted"]
        assert (tenant == "(wire)") == (counts["admitted"] == 0)
        assert not any(n for name, n in counts.items() if name not in ("admitted", "answered"))
    assert done.guaranteed == {t.name: t.rate for t in card.tenants}
    assert (done.events, done.seconds, done.late) == ((), 0.02, 0.0)


def test_a_tenant_is_served_while_it_is_there(plan, card, driver):
    """Its frames are refused before and after; the other one's are not."""
    frames = steady(card, 1.0, alpha=100, beta=200)
    events = ("beta:arrives@0.25", "beta:leaves@0.65")
    done = in_virtual_time(plan, driver, frames, 1.0, *events)
    # what is due at a second is done at the next border of a window: from 0.3 to 0.7
    assert [done.counters["beta"][n] for n in COUNTED] == [80, 80, 0, 120]
    assert [done.counters["alpha"][n] for n in COUNTED] == [100, 100, 0, 0]
    assert [(round(e.time, 6), e.what) for e in done.events] == [
        (0.3, "pre-launch"),
        (0.7, "de-schedule"),
    ]
    assert done.guaranteed == {"alpha": card.tenants[0].rate, "beta": 1}


def test_what_the_bucket_does_not_pay_for_is_beyond_the_guarantee(plan, card, driver):
    rate, burst = 3 * WANTED["alpha"], card.tenants[0].burst / SIZE
    done = in_virtual_time(plan, driver, steady(card, 0.05, alpha=rate), 0.05)
    counts = done.counters["alpha"]
    assert counts["admitted"] == 0.05 * rate
    assert counts["beyond"] == pytest.approx(0.05 * rate * 2 / 3 - burst, abs=2)


def test_a_lost_region_s_networks_are_loaded_elsewhere_at_once(plan, card, driver):
    frames = steady(card, 0.5, alpha=200, beta=200)
    lost = next(r.index for r in plan.regions if "beta/b" in r.chain)
    done = in_virtual_time(plan, driver, frames, 0.5, f"{lost}:lost@0.25")
    assert [e.what for e in done.events] == ["lost", "free"]
    assert [done.counters["beta"][n] for n in COUNTED] == [100, 100, 0, 0]


def test_an_interrupt_ends_a_run_with_its_counters(plan, card, driver):
    def interrupted():
        yield from steady(card, 0.1, alpha=100)
        raise KeyboardInterrupt

    done = in_virtual_time(plan, driver, interrupted(), 60.0)
    assert done.sent == 10
    assert done.seconds < 0.1
    assert done.to_dict()["counters"]["alpha"]["answered"] == 10


def test_a_capture_is_sent_at_its_times(plan, card, driver, tmp_path):
    frames = frames_of(card)
    times = (7.0, 7.5, 7.2, 9.0)  # one stamp goes back
    taken = [
        (frames["beta"], len(frames["beta"]), int((t - 7) * 10**9)) for t in times
    ]  # fmt: skip
    (tmp_path / "some.pcap").write_bytes(pcap(1, taken, 1, "<"))
    sent = [*run.recorded(tmp_path / "some.pcap")]
    assert [at for at, _ in sent] == [0.0, 0.5, 0.5, 2.0]
    assert {frame for _, frame in sent} == {frames["beta"]}
    done = in_virtual_time(plan, driver, sent, 1.0)
    assert (done.sent, done.counters["beta"]["answered"]) == (3, 3)
    (tmp_path / "raw.pcap").write_bytes(pcap(101, taken, 1, "<"))
    with pytest.raises(DataError, match="expected a capture of Ethernet"):
        [*run.recorded(tmp_path / "raw.pcap")]


def test_only_a_card_that_equals_its_export_and_runs_on_a_host_is_opened(folder, tmp_path):
    other = cards.plan(folder, cards.text("host", join="both"))
    with pytest.raises(VerifyError, match="not what n3ic"):
        open_card(other, folder / "card", 1)
    cards.differing_models(tmp_path)
    programs = cards.plan(tmp_path, cards.alone("p4", "p"))
    export_card(programs, tmp_path / "p4", verify=False)
    with pytest.raises(UsageError, match="expected one of target host, xdp or netfpga"):
        open_card(programs, tmp_path / "p4", 1)


def test_a_program_in_the_kernel_is_driven_alike(tmp_path):
    """The same loop and the same frames, of which the program refuses as many as the library."""
    cards.differing_models(tmp_path)
    programs = cards.plan(tmp_path, cards.alone("xdp", "pr", wants="1000000 packets/s"))
    export_card(programs, tmp_path / "xdp", verify=False)
    try:
        driver = open_card(programs, tmp_path / "xdp", 1)
    except MissingDependencyError as error:
        pytest.skip(f"the kernel runs no programs here: {error}")
    with closing(driver):
        frames = steady(software_card(programs, "xdp"), 1.0, p=100, r=200)
        events = ("r:arrives@0.25", "r:leaves@0.65")
        done = in_virtual_time(programs, driver, [*frames, (0.99, b"?")], 1.0, *events)
    assert [done.counters["r"][n] for n in ("answered", "no_model")] == [80, 120]
    assert [done.counters["p"][n] for n in ("answered", "no_model")] == [100, 0]
    assert done.counters["(wire)"]["other"] == 1
    assert len(programs.regions) == 1 and done.events == ()  # the other one uses the region
    assert done.guaranteed["r"] == 1 < done.guaranteed["p"]


def test_a_changed_bucket_in_the_kernel_keeps_what_it_holds():
    fields = struct.Struct("=II5Q")  # lock, pad, rate, burst, tokens, part, time of filling
    full = tenant_value(100, 50)
    assert fields.unpack(changed_tenant(full, 10**12, 2**32, 7))[2:] == (10**12, 2**32, 50, 0, 0)
    bucket = fields.pack(0, 0, 100, 50, 10, 3, 10**9)
    assert fields.unpack(changed_tenant(bucket, 7, 60, 10**9 + 123_456_789))[2:] == (
        *(7, 60, 22, 345_678_903),
        10**9 + 123_456_789,
    )
    late = 10**12  # the old rate has filled the bucket by then
    assert fields.unpack(changed_tenant(bucket, 7, 60, late))[2:] == (7, 60, 50, 0, late)
    assert fields.unpack(changed_tenant(bucket, 7, 20, late))[4] == 20


def test_a_card_runs_as_typed(folder, n3ic, monkeypatch):
    monkeypatch.chdir(folder)
    where = f"card run {folder / 'card'} --card {folder / 'card.toml'}"
    done = n3ic(f"{where} --seconds 0.5 --threads 2 --load 'constant*0.0005' --json")
    report = json.loads(done.stdout)
    assert report["counters"]["alpha"]["answered"] == report["counters"]["alpha"]["admitted"] > 0
    assert report["kind"] == "measured" and report["seconds"] >= 0.5
    shown = n3ic(f"{where} --seconds 0.9 --frames {folder / 'card' / 'frames.pcap'}").stdout
    assert "guaranteed B/s" in shown and "1 frames in" in shown
    done = n3ic(f"{where} --frames a.pcap --load poisson", expect=2)
    assert "expected one of them, got both" in done.stderr
    done = n3ic(f"{where} --event 0:stuck@0.1", expect=2)
    assert "expected arrives, leaves or lost" in done.stderr


def test_a_card_is_run_from_python_as_it_is_typed(folder):
    where = {"directory": folder / "card", "card": folder / "card.toml"}
    shares = []
    done = n3ic.run_card(
        **where,
        seconds=0.3,
        load=["constant*0.0005"],
        event=["beta:leaves@0.1"],
        threads=2,
        progress=lambda share, text: shares.append(share),
    )
    assert done.counters["alpha"]["answered"] == done.counters["alpha"]["admitted"] > 0
    assert (done.guaranteed["beta"], done.seconds >= 0.3, shares != []) == (1, True, True)
    assert "frames in" in repr(done)
    capture = folder / "card" / "frames.pcap"
    assert n3ic.run_card(**where, seconds=0.9, frames=capture).sent == 1
    for wrong, message in (
        ({"seconds": 0}, "seconds: expected 0.1 to"),
        ({"threads": 0}, "threads: expected 1 or more"),
        ({"frames": capture, "load": ["poisson"]}, "expected one of them, got both"),
        ({"event": ["0:stuck@0.1"]}, "expected arrives, leaves or lost"),
        ({"directory": folder}, "not an exported card"),
    ):
        with pytest.raises(ArgumentError, match=message):
            n3ic.run_card(**where | {"seconds": 0.2} | wrong)
