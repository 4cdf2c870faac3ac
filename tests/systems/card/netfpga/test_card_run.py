# SPDX-License-Identifier: Apache-2.0
"""Four tenants under the control loop, with loads that change: the card's Verilog, and the host."""

import shutil
from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from n3ic.exporters.netfpga.packet.traffic import Frame
from n3ic.systems.card.compile import frame_lengths, software_card
from n3ic.systems.card.control.regions import Costs
from n3ic.systems.card.control.run import ControlledRun, generated, run_card
from n3ic.systems.card.export import export_card
from n3ic.systems.card.host.driver import HostDriver
from n3ic.systems.card.host.library import CardLibrary
from n3ic.systems.card.host.verify import shape_of
from n3ic.systems.card.netfpga.driver import NetfpgaDriver
from n3ic.systems.card.netfpga.target import CARDS
from n3ic.systems.card.netfpga.traffic import FIRST_CLOCK, TrafficPacket, outcome
from n3ic.systems.card.planned_scenario import scenario_under
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
FLOOD = 7
# The plan has t0 and t2 in one region, t1 and t3 in the other. Times are in parts of the run.
LOADS = (
    f"t0=constant*0.8,{FLOOD}@1,{FLOOD}@2,0.8@3",
    f"t2=constant*0.8,0.8@1,{FLOOD}@2,0.8@3",
    "t1=constant*0.8",
    "t3=poisson*0.5",
)
EVENTS = ("t1:arrives@2", "t3:arrives@1", "t3:leaves@3")


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


def scaled(lines, part: float):
    """Lines whose times are in parts of the run, each of so many seconds."""

    def line(each: str) -> str:
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
    assert all(t in ("t1", "t3") for _, t in untouched)
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


def run_both(tmp_path, wants: int, part: float, window: float, shape=(24, 8, 2), more: str = ""):
    """The same load and events on both cards, in four parts of so many seconds."""
    for uid in range(3, 7):
        small_cards.net(shape, uid).save(tmp_path / f"m{uid}.n3ic")
    plans = {t: cards.plan(tmp_path, text(t, wants, more=more)) for t in ("netfpga", "host")}
    for target, plan in plans.items():
        export_card(plan, tmp_path / target, verify=False)

    def scenario_of(target):
        def made(fitted):
            under = scenario_under(
                plans[target], 4 * part, scaled(LOADS, part), scaled(EVENTS, part)
            )
            board = replace(
                fitted(under).board,
                monitor=window,
                hold=2 * window,
                costs=Costs(0.4 * window, 0.1 * window),
            )
            return replace(fitted(under), board=board)

        return made

    netfpga, reference = on_netfpga(plans["netfpga"], tmp_path / "netfpga", scenario_of("netfpga"))
    host = on_host(plans["host"], tmp_path / "host", scenario_of("host"), reference)
    return netfpga, host, plans["netfpga"]


def check_shares(netfpga: Side, host: Side, plan, wants: int, part: float, window: float) -> None:
    """What the law of two colours says of four parts."""
    image = CARDS.card_image(plan)
    card = software_card(plan, "netfpga")
    for side, bursts in (
        (netfpga, [t.burst / 2 for t in image.tenants]),  # beats of a frame
        (host, [t.burst / 64 for t in card.tenants]),  # bytes of one
    ):
        for tenant in ("t1", "t3"):  # never beyond, so nothing of theirs is lost
            counts = side.run.counters[tenant]
            assert counts["beyond"] == counts.get("overflow", 0) == 0 < counts["admitted"]
        # A guarantee is used up to the last packet, and the bucket once.
        for tenant, due in ((0, 0.8 + 1 + 1 + 0.8), (2, 0.8 + 0.8 + 1 + 0.8)):
            within = side.within(TENANTS[tenant]) - bursts[tenant]
            assert within == pytest.approx(due * wants * part, rel=0.01, abs=2)
    assert netfpga.run.counters["t0"]["overflow"] > 0 < netfpga.run.counters["t2"]["overflow"]
    assert [(e.what, e.region, e.chain) for e in netfpga.run.events] == [
        ("pre-launch", 0, ("t1/net", "t3/net"))
    ]
    # Idle time goes to whoever asks: the region gives all that it has.
    inside = 2 * window  # counters of a part, without its borders
    most = HZ / image.regions[1].tasks[0].interval
    alone = netfpga.rate("t0", part + inside, 2 * part)
    assert netfpga.rate("t2", part + inside, 2 * part) == pytest.approx(0.8 * wants, rel=0.05)
    assert alone + 0.8 * wants == pytest.approx(min(most, (FLOOD + 0.8) * wants), rel=0.06)
    first, second = (netfpga.rate(t, 2 * part + inside, 3 * part) for t in ("t0", "t2"))
    assert first == pytest.approx(second, rel=0.05)
    assert first + second == pytest.approx(most, rel=0.06)
    assert first > 1.5 * wants


@needs_simulator
def test_four_tenants_have_what_the_law_says_on_both(tmp_path):
    wants, part, window = 5_000_000, 25e-6, 5e-6
    netfpga, host, plan = run_both(tmp_path, wants, part, window)
    print(netfpga.run, host.run)
    check_shares(netfpga, host, plan, wants, part, window)
