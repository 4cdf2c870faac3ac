# SPDX-License-Identifier: Apache-2.0
"""Four tenants under the control loop, with loads that change: the card's Verilog, and the host."""

import json
import shutil
import tempfile
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import CardError, DataError, VerifyError
from n3ic.exporters.netfpga.packet.traffic import Frame
from n3ic.exporters.netfpga.tools import simulate as simulators
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.compile import frame_lengths, software_card
from n3ic.systems.card.control.regions import Costs
from n3ic.systems.card.control.run import ControlledRun, generated, run_card
from n3ic.systems.card.export import export_card
from n3ic.systems.card.frames import words_of
from n3ic.systems.card.host.driver import HostDriver
from n3ic.systems.card.host.library import CardLibrary
from n3ic.systems.card.host.verify import shape_of
from n3ic.systems.card.netfpga import control
from n3ic.systems.card.netfpga import driver as driver_module
from n3ic.systems.card.netfpga.changes import operations_of
from n3ic.systems.card.netfpga.driver import NetfpgaDriver
from n3ic.systems.card.netfpga.target import CARDS
from n3ic.systems.card.netfpga.traffic import FIRST_CLOCK, TrafficPacket, outcome, result_of
from n3ic.systems.card.planned_scenario import scenario_under
from n3ic.systems.card.simulation.baselines import POLICIES
from n3ic.systems.card.simulation.engine import simulate
from tests.support import small_cards
from tests.support import software_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")
pytestmark = pytest.mark.usefixtures("quick_build")
needs_simulator = pytest.mark.skipif(
    shutil.which("iverilog") is None and shutil.which("verilator") is None,
    reason="needs iverilog or verilator",
)
HZ = 200e6
TENANTS = ("t0", "t1", "t2", "t3")
WANTS = 11_000_000  # packets a second of each; a region sustains less than three times that
FLOOD = 3
RELOAD = 0.4  # windows in which a bitstream is loaded
# Two tenants have one region, and two that come later the other. Times are in parts of the run.
LOADS = (
    f"ONE=constant*0.8,{FLOOD}@1,0.8@3",
    f"TWO=constant*0.8,{FLOOD}@2,0.8@3",
    "LATE=constant*0.8",
    "GUEST=poisson*0.5",
)
EVENTS = ("LATE:arrives@2", "GUEST:arrives@1", "GUEST:leaves@3")


@pytest.fixture(autouse=True)
def short_builds(request, monkeypatch):
    """Icarus, where it is: default runs are shorter than a build by Verilator."""
    if request.node.get_closest_marker("slow") is None and shutil.which("iverilog"):
        monkeypatch.setattr(simulators, "choose_simulator", lambda choice="auto", **_: "icarus")


def text(target: str, wants: int, model: str = "m", more: str = "") -> str:
    """Four tenants with a network each; buckets hold as little as they may."""
    out = f'name = "four"\n[device]\ntarget = "{target}"\nregions = 2\n{more}'
    for uid, name in enumerate(TENANTS, start=3):
        out += f"""
[[tenants]]
name = "{name}"
bucket_ms = 0.001
{cards.TASK.format(name="net", kind="network", model=f"{model}{uid}")}
[[tenants.graphs]]
name = "g"
uid = {uid}
wants = "{wants} packets/s"
packet_bytes = 64
flow = ["net"]
"""
    return out


def roles(plan) -> dict[str, str]:
    """The tenants by what they do: those of one region first."""
    first, second = (sorted(task.split("/")[0] for task in r.chain) for r in plan.regions)
    return dict(zip(("LATE", "GUEST", "ONE", "TWO"), (*first, *second), strict=True))


def scaled(lines, part: float, named: dict[str, str]):
    """Lines of tenants, whose times are in parts of the run, each of so many seconds."""

    def line(each: str) -> str:
        for role, name in named.items():
            each = each.replace(role, name)
        pieces = each.split(",")
        timed = (p.partition("@") for p in pieces)
        return ",".join(f"{a}@{float(b) * part:.9g}" if b else a for a, _, b in timed)

    return tuple(line(each) for each in lines)


@dataclass
class Side:
    """What a card did, and the frames that left it, by the second at which they were sent."""

    run: ControlledRun
    left: list[tuple[float, float, str]]  # second of arrival, of departure, tenant

    def within(self, tenant: str) -> int:
        counts = self.run.counters[tenant]
        return counts["admitted"] - counts["beyond"]

    def rate(self, tenant: str, first: float, last: float) -> float:
        """Packets a second that left between two seconds."""
        return sum(first <= at < last and t == tenant for _, at, t in self.left) / (last - first)


class Reference:
    """Answers of the networks to the frames of a run."""

    def __init__(self, image):
        self.image = image
        self.frames: list[tuple[float, bytes]] = []
        self._known: dict[bytes, bytes] = {}

    def answer(self, frame: bytes) -> bytes:
        if frame not in self._known:
            self._known[frame] = outcome(self.image, TrafficPacket(Frame(frame))).data
        return self._known[frame]

    def tenant(self, frame: bytes) -> str:
        return TENANTS[frame[19] - 3]


def on_netfpga(plan, folder, scenario_of) -> tuple[Side, Reference]:
    """Run the Verilog; every packet that leaves is compared."""
    image = CARDS.card_image(plan)
    reference, left, untouched = Reference(image), [], []

    def departed(packet) -> None:
        at, frame = reference.frames[packet.number]
        if packet.data == frame:
            untouched.append((at, reference.tenant(frame)))
            return
        assert packet.data == reference.answer(frame)
        left.append((at, (packet.clock - FIRST_CLOCK) / HZ, reference.tenant(frame)))

    driver = NetfpgaDriver(plan, image, folder, HZ, departed)
    with closing(driver):
        scenario = scenario_of(driver.fitted)
        reference.frames = [*generated(scenario, driver.requests(8), 0)]
        done = run_card(scenario, driver, reference.frames)
    # Before the step that lets a tenant in, its frames pass.
    assert {t for _, t in untouched} <= {roles(plan)[r] for r in ("LATE", "GUEST")}
    assert len(untouched) == done.counters["(wire)"]["left"]
    assert len(left) + len(untouched) == sum(c["left"] for c in done.counters.values())
    return Side(done, left), reference


class CheckedHost(HostDriver):
    """A card on the host whose answers are compared."""

    reference: Reference
    checked = 0

    def send(self, frame, now):
        """Number the frame by its place."""
        self._running.submit(frame, round(now * 10**9), self._sent)
        self._sent += 1
        self._collect()

    def _collect(self):
        self._running.wait()
        for tenant in range(len(TENANTS)):
            while answer := self._running.next(tenant):
                frame = self.reference.frames[answer.cookie][1]
                at = self.reference.image.result_at
                expected = self.reference.answer(frame)[at : at + 10]
                assert b"".join(r.text for r in answer.results) == expected
                self.checked += 1


def on_host(plan, folder, scenario_of, reference) -> Side:
    """Run the host's library in virtual time on the same frames."""
    card = software_card(plan, "host")
    library = CardLibrary(folder, shape_of(card))
    driver = CheckedHost(card, library, frame_lengths(plan, card), 0)
    driver.reference = reference
    now = 0.0

    def wait(until):
        nonlocal now
        now = max(now, until)
        return now

    done = run_card(scenario_of(driver.fitted), driver, reference.frames, wait)
    assert driver.checked == sum(c["answered"] for c in done.counters.values()) > 0
    return Side(done, [])


def exported(folder, target: str, wants: int, shape=(24, 8, 2)):
    """The plan of four networks, which is exported into a folder of the target's name."""
    for uid in range(3, 7):
        small_cards.net(shape, uid).save(folder / f"m{uid}.n3ic")
    (folder / f"{target}.toml").write_text(text(target, wants))
    plan = cards.plan(folder, text(target, wants))
    export_card(plan, folder / target, verify=False)
    return plan


def run_both(folder, plans, part: float, window: float):
    """The same load and events on both cards, in four parts of so many seconds."""
    named = roles(plans["netfpga"])

    given = {}

    def scenario_of(target):
        def made(fitted):
            loads, events = (scaled(lines, part, named) for lines in (LOADS, EVENTS))
            under = scenario_under(plans[target], 4 * part, loads, events)
            board = replace(
                fitted(under).board,
                monitor=window,
                hold=2 * window,
                costs=Costs(RELOAD * window, 0.1 * window),
            )
            given[target] = replace(fitted(under), board=board)
            return given[target]

        return made

    netfpga, reference = on_netfpga(plans["netfpga"], folder / "netfpga", scenario_of("netfpga"))
    host = on_host(plans["host"], folder / "host", scenario_of("host"), reference)
    return netfpga, host, given["netfpga"]


def check_shares(netfpga: Side, host: Side, plan, wants: int, part: float, window: float) -> None:
    """What the law of two colours says of four parts."""
    image = CARDS.card_image(plan)
    named = roles(plan)
    for side, bursts in (
        (netfpga, [t.burst / 2 for t in image.tenants]),  # beats of a frame
        (host, [t.burst / 64 for t in software_card(plan, "host").tenants]),  # bytes of one
    ):
        late, guest = (side.run.counters[named[role]] for role in ("LATE", "GUEST"))
        # Never beyond, so nothing is lost but what its region was not ready for.
        assert late["beyond"] == late.get("overflow", 0) == 0 < late["admitted"]
        assert guest.get("overflow", 0) <= max(0, 1.3 * 0.5 * wants * RELOAD * window - 31)
        assert guest["beyond"] <= 32 < guest["admitted"]
        # A guarantee is used up to the last packet, and the bucket once.
        for role, due in (("ONE", 0.8 + 1 + 1 + 0.8), ("TWO", 0.8 + 0.8 + 1 + 0.8)):
            within = side.within(named[role]) - bursts[TENANTS.index(named[role])]
            assert within == pytest.approx(due * wants * part, rel=0.01, abs=2)
    one, two = named["ONE"], named["TWO"]
    assert netfpga.run.counters[one]["overflow"] > 0 < netfpga.run.counters[two]["overflow"]
    assert [(e.what, e.region, e.chain) for e in netfpga.run.events] == [
        ("pre-launch", 0, plan.regions[0].chain)
    ]
    # Idle time goes to whoever asks: the region gives all that it has.
    inside = 2 * window  # counters of a part, without its borders
    sustained = plan.costs["t0/net"].rate.value
    alone, beside = (netfpga.rate(t, part + inside, 2 * part) for t in (one, two))
    assert beside == pytest.approx(0.8 * wants, rel=0.05)
    first, second = (netfpga.rate(t, 2 * part + inside, 3 * part) for t in (one, two))
    assert first == pytest.approx(second, rel=0.05)
    assert first + second == pytest.approx(alone + beside, rel=0.03)
    assert alone + beside == pytest.approx(sustained, rel=0.06)
    assert second > 1.3 * wants


@pytest.fixture(name="card", scope="module")
def card_fixture(tmp_path_factory):
    """A folder, and the plan of the netfpga card in it."""
    folder = tmp_path_factory.mktemp("card")
    return folder, exported(folder, "netfpga", WANTS)


@pytest.fixture(name="opened")
def opened_fixture(card):
    """Opens the card; each packet that leaves is put into a list."""
    folder, plan = card
    with ExitStack() as stack:

        def opened(left):
            image = CARDS.card_image(plan)
            driver = NetfpgaDriver(plan, image, folder / "netfpga", HZ, left.append)
            stack.callback(driver.close)
            return driver

        yield opened


@pytest.mark.slow
@needs_simulator
def test_four_tenants_have_what_the_law_says_on_both(card):
    folder, plan = card
    plans = {"netfpga": plan, "host": exported(folder, "host", WANTS)}
    part, window = 20e-6, 4e-6
    netfpga, host, _ = run_both(folder, plans, part, window)
    check_shares(netfpga, host, plan, WANTS, part, window)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="needs verilator")
def test_four_tenants_with_windows_of_a_millisecond(tmp_path):
    """The windows of the simulator, and a load that changes every 6 ms; some 200,000 frames."""
    wants, shape = 2_200_000, (256, 32, 16, 2)
    plans = {t: exported(tmp_path, t, wants, shape) for t in ("netfpga", "host")}
    part, window = 6e-3, 1e-3
    netfpga, host, scenario = run_both(tmp_path, plans, part, window)
    check_shares(netfpga, host, plans["netfpga"], wants, part, window)
    simulated = simulate(scenario, POLICIES["chains"])
    events = [[(e.what, e.region, e.chain) for e in r.events] for r in (simulated, netfpga.run)]
    assert events[0] == events[1]
    for tenant in TENANTS:
        left = simulated.graphs[f"{tenant}/g"].left["departed"] / HZ
        for at in np.arange(8) * part / 2:  # two points of the curve in each part
            ours = np.count_nonzero((at <= left) & (left < at + part / 2))
            assert ours == pytest.approx(
                netfpga.rate(tenant, at, at + part / 2) * part / 2, rel=0.05, abs=10
            )


@needs_simulator
def test_a_network_is_replaced_through_the_write_port_during_a_run(card, opened):
    """Its answers are those of the old one, then those of the new one; other tenants' stay."""
    plan = card[1]
    left = []
    driver = opened(left)
    image = CARDS.card_image(plan)
    new = small_cards.net((24, 8, 2), 77)
    change = CardChange("replace", (), {"t0/net": new})
    scenario = scenario_under(plan, 10e-6, (), ())
    scenario = replace(scenario, board=replace(scenario.board, monitor=2e-6))
    sent = [*generated(driver.fitted(scenario), driver.requests(4), 0)]

    def frames():
        for number, each in enumerate(sent):
            if number == len(sent) // 2:
                driver.control(operations_of(image, change, 0))
            yield each

    done = run_card(driver.fitted(scenario), driver, frames())
    assert (done.kind, done.sent, len(left)) == ("simulated", len(sent), len(sent))
    by_new = []
    for packet in left:
        asked = TrafficPacket(Frame(sent[packet.number][1]))
        expected = outcome(image, asked).data
        if asked.frame.data[19] == 3:
            words = words_of(new, [asked.frame.data[image.offset :][:3]], features=False)
            replaced = outcome(image, asked, [result_of(new, words)]).data
            by_new.append(packet.data == replaced)
            expected = replaced if by_new[-1] else expected
        assert packet.data == expected
    assert by_new == sorted(by_new)
    assert {*by_new} == {False, True}


@needs_simulator
def test_an_interrupt_leaves_nothing_behind(card, tmp_path, monkeypatch):
    """No process, no descriptor, no folder; and the counters are told."""
    folder, plan = card
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = Path("/proc/self/fd")
    before = {*descriptors.iterdir()}
    image = CARDS.card_image(plan)
    with closing(NetfpgaDriver(plan, image, folder / "netfpga", HZ)) as driver:
        process = driver.bench.process
        sent = [*generated(scenario_under(plan, 4e-6, (), ()), driver.requests(2), 0)]

        def frames():
            yield from sent
            raise KeyboardInterrupt

        done = run_card(driver.fitted(scenario_under(plan, 1.0, (), ())), driver, frames())
        assert done.sent == len(sent)
        # Those that come last are still on their way.
        assert 0 <= done.sent - sum(c["admitted"] for c in done.counters.values()) <= 8
        assert process.poll() is None and [*tmp_path.iterdir()] != []
    assert process.poll() is not None and [*tmp_path.iterdir()] == []
    assert {*descriptors.iterdir()} == before


@needs_simulator
def test_a_simulation_that_stops_is_told(opened):
    driver = opened([])
    driver.counters()
    driver.bench.process.kill()
    with pytest.raises(VerifyError, match=r"the card .* has stopped"):
        driver.counters()


@needs_simulator
def test_frames_that_no_card_takes_are_refused(opened):
    driver = opened([])
    for wrong in (b"", bytes(1519)):
        with pytest.raises(DataError, match=f"a frame of {len(wrong)} bytes, expected 1 to 1518"):
            driver.send(wrong, 0.0)
    driver.send(bytes(1518), 0.0)
    driver.send(b"?", 0.0)
    driver.finish()
    assert driver.tenant_counters()["(wire)"]["left"] == 2


class NoBench:
    """Takes what the control plane would do."""

    def __init__(self):
        self.told: list[str] = []

    def step(self, packets, beats, program, clock, reads=()):
        self.told += [f"{clock}: {line}" for line in control.listing(program).splitlines()]
        return [0] * len(reads)

    def take(self) -> list[str]:
        """What region of it is held, put into reset, written or released, and when."""
        out, self.told = self.told, []
        kinds = {"= 0x00000000": "serves", "= 0x00000001": "held", "= 0x00000003": "in reset"}
        return [
            f"{line.split(':')[0]}: {(int(line.split('0x')[1][:4], 16) & 0xFFF) >> 3} {kind}"
            for line in out
            for end, kind in kinds.items()
            if "register 0x2" in line and line.endswith(end) and "wait" not in line
        ]


def test_instances_are_released_and_held(tmp_path, monkeypatch):
    """Two regions with one chain: an instance of the loop is one of them, and there is no third."""
    bench = NoBench()
    monkeypatch.setattr(driver_module, "LiveBench", lambda *_: bench)
    small_cards.net((24, 8, 2), 3).save(tmp_path / "p.n3ic")
    description = cards.alone("netfpga", "p", wants="40000000 packets/s")
    plan = cards.plan(tmp_path, description.replace('"netfpga"', '"netfpga"\nregions = 3'))
    assert [r.chain for r in plan.regions].count(("p/net",)) == 2
    driver = NetfpgaDriver(plan, CARDS.card_image(plan), tmp_path, HZ)
    fitted = driver.fitted(scenario_under(plan, 1.0, (), ()))
    assert (fitted.regions, fitted.exported) == (2, (("p/net",),) * 2)
    driver.load(1, ("p/net",), 0.0)
    driver.counters()
    assert bench.take() == ["49: 0 held", "49: 1 held", "49: 0 serves"]
    driver.load(0, ("p/net",), 5e-6)  # the bitstream is loaded until then
    driver.wait(10e-6)
    driver.counters()
    assert bench.take() == ["1049: 1 in reset", "2049: 1 held", "2049: 1 serves"]
    with pytest.raises(CardError, match="no free region with p/net"):
        driver.load(2, ("p/net",), 0.0)
    driver.unload(1)
    driver.load(0, ("p/net",), 0.0)  # instead of itself: the lowest that is free
    driver.counters()
    assert bench.take() == ["2049: 0 held", "2049: 1 held", "2049: 0 serves"]


@needs_simulator
def test_a_simulated_card_runs_as_typed(card, n3ic):
    line = f"card run {card[0] / 'netfpga'} --card {card[0] / 'netfpga.toml'}"
    done = n3ic(f"{line} --seconds 1e-5 --load 'constant*0.5,2@5e-6' --json")
    report = json.loads(done.stdout)
    assert (report["kind"], report["seconds"]) == ("simulated", 1e-5)
    for tenant in TENANTS:
        assert report["counters"][tenant]["left"] == report["counters"][tenant]["admitted"] == 138
    for more, message in (
        ("--seconds 20", "expected 1e-05 to 10 for target netfpga, got 20"),
        ("--event 0:lost@0.001", "expected arrives or leaves for target netfpga, got lost"),
        ("--load constant,2@0.2,3@0.1", "expected FACTOR@SECOND, later than the one before"),
        ("--load constant,x@0.2", "expected FACTOR@SECOND"),
    ):
        assert message in " ".join(n3ic(f"{line} {more}", expect=2).stderr.split())
