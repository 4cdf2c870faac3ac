# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants on the host: bit equality, turns, isolation, change while it runs."""

import struct
import subprocess
import threading
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import CardError, VerifyError
from n3ic.kernel import blob
from n3ic.model.random_models import random_model
from n3ic.systems.card.compile import SoftwareCard, software_card
from n3ic.systems.card.export import export_card
from n3ic.systems.card.frames import frame_of, joined, traffic
from n3ic.systems.card.host.library import WIRE, CallStatus, CardLibrary, OpenCard
from n3ic.systems.card.host.verify import check_answer, shape_of, verify_card
from n3ic.systems.card.host.write import write_card
from tests.support import software_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")
pytestmark = pytest.mark.usefixtures("quick_build")
ALPHA, BETA = 0, 1
SECOND = 10**9


@pytest.fixture(name="plan", scope="module")
def plan_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    cards.models(folder)
    return cards.plan(folder, cards.text("host"))


@pytest.fixture(name="card", scope="module")
def card_fixture(plan):
    """With three turns of alpha to one of beta, and guarantees of few frames a second."""
    card = software_card(plan, "host")
    alpha, beta = card.tenants
    return replace(
        card,
        tenants=(
            replace(alpha, weight=49152, rate=1000, burst=1 << 20),
            replace(beta, weight=16384, rate=1000, burst=1 << 20),
        ),
    )


@pytest.fixture(name="directory", scope="module")
def directory_fixture(card, plan, tmp_path_factory):
    out = tmp_path_factory.mktemp("card")
    # one cost for both graphs: turns are of weights alone
    write_card(
        card, replace(plan, costs={n: replace(c, needs={}) for n, c in plan.costs.items()}), out
    )
    return out


@pytest.fixture(name="library", scope="module")
def library_fixture(card, directory):
    return CardLibrary(directory, shape_of(card))


@pytest.fixture(name="asked", scope="module")
def asked_fixture(card):
    """Frames of alpha and of beta."""
    frames = traffic(card, 40)
    return [[a for a in frames if card.graphs[a.graph].tenant == t] for t in (ALPHA, BETA)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("join", "carrier"),
    [
        ("vote", "udp-port"),
        pytest.param("most-certain", "vlan", marks=pytest.mark.slow),
        pytest.param("both", "header", marks=pytest.mark.slow),
    ],
)
def test_export_runs_every_network_through_the_joint_library(tmp_path, join, carrier):
    cards.models(tmp_path)
    plan = cards.plan(tmp_path, cards.text("host", join=join, carrier=carrier))
    done = export_card(plan, tmp_path / "out", packets=60)
    assert done.check is not None and not done.missing
    assert done.check.graphs == {"alpha/paths": 120, "beta/attacks": 120}
    assert done.check.inferences == 480
    assert "share what is idle" in (tmp_path / "out" / "report.md").read_text()
    again = export_card(plan, tmp_path / "again", verify=False).directory
    for path in again.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "out" / path.relative_to(again)).read_bytes()


@pytest.mark.slow
def test_a_wrong_weight_bit_is_found(card, plan, tmp_path):
    broken = card.graphs[0].branches[1].model
    weights = broken.output.weights.copy()
    weights[0] ^= True
    broken = replace(broken, output=replace(broken.output, weights=weights))
    branches = list(card.graphs[0].branches)
    branches[1] = replace(branches[1], model=broken)
    wrong = replace(
        card, graphs=(replace(card.graphs[0], branches=tuple(branches)), card.graphs[1])
    )
    write_card(wrong, plan, tmp_path)
    with pytest.raises(VerifyError, match="alpha/paths: scores"):
        verify_card(card, tmp_path, 10)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"input", "b", "guard"', '"b", "guard", "input"', "input 'beta/input' after policy"),
        ('kind = "input"\nmodel = "b.n3ic"', cards.VERILOG, "target host has no verilog task"),
        ('model = "a2.n3ic"', 'model = "b.n3ic"', "fields of"),
        ('classes = ["class1"]', 'classes = ["no"]', "no network before it has a class 'no'"),
        ('action = "drop"', 'action = "mark", mark = 8', 'expected uid = "udp-port"'),
        ('name = "beta"\n', 'name = "beta"\nports = [1]\n', "has no ports of tenants"),
    ],
)
def test_what_the_host_does_not_carry_is_refused(tmp_path, old, new, message):
    cards.models(tmp_path)
    document = cards.text("host", join="both").replace(old, new)
    with pytest.raises(CardError, match=message):
        export_card(cards.plan(tmp_path, document), tmp_path / "out", verify=False)
    assert not (tmp_path / "out").exists()


def served(running: OpenCard) -> list[int]:
    """How many answers each tenant has, which are taken."""
    out = [0, 0]
    for tenant in (ALPHA, BETA):
        while running.next(tenant) is not None:
            out[tenant] += 1
    return out


@pytest.mark.slow
def test_turns_are_as_the_plan_weighs_them(library, asked):
    running = library.open(0)
    for i in range(40):
        for tenant in (ALPHA, BETA):
            assert running.submit(asked[tenant][i].frame, 0) == CallStatus.OK
    assert running.work(40) == 40
    assert served(running) == [30, 10]
    running.work(40)  # alpha has 10 left, then beta is alone
    assert served(running) == [10, 30]


@pytest.mark.slow
def test_a_tenant_that_was_idle_saves_up_no_turns(library, asked):
    running = library.open(0)
    for i in range(30):
        running.submit(asked[BETA][i].frame, 0)
    running.work(20)
    served(running)
    for i in range(20):
        running.submit(asked[ALPHA][i].frame, 0)
    running.work(12)
    assert served(running) == [10, 2]


def ask(running: OpenCard, frames, others=()) -> list:
    """Answers to frames of alpha, others coming between them; each within two turns."""
    rng = np.random.default_rng(3)
    answers = []
    now = 0
    for number, each in enumerate(frames):
        for _ in range(100 if others else 0):
            source, frame = others[int(rng.integers(len(others)))]
            running.submit(frame, now, 1, source)
        assert running.submit(each.frame, now, number, ALPHA) == CallStatus.OK
        running.work(2)
        answers.append(running.next(ALPHA))
        assert answers[-1] is not None, "alpha waits for more than one frame of another"
        now += SECOND
    return answers


@pytest.mark.slow
def test_a_flood_malformed_frames_and_foreign_uids_change_nothing_of_another(card, library, asked):
    """No bit of alpha's answers, none of its counters, and its turn comes after one of beta's."""
    alone = library.open(0)
    expected = ask(alone, asked[ALPHA])
    beta, foreign = asked[BETA][0].frame, asked[ALPHA][0].frame
    others = [
        *((BETA, beta) for _ in range(4)),
        (BETA, beta[: card.offset + 2]),
        (BETA, foreign),
        (BETA, foreign[: card.offset]),
        (BETA, b""),
        (BETA, b"\x00" * 13),
        (BETA, bytes(range(64))),
        (BETA, frame_of(card, replace(card.graphs[0], uid=4000), b"", np.random.default_rng(0))),
    ]
    flooded = library.open(0)
    assert ask(flooded, asked[ALPHA], others) == expected
    assert flooded.counters(ALPHA) == alone.counters(ALPHA)
    theirs = flooded.counters(BETA)
    assert theirs["foreign"] and theirs["malformed"] and theirs["other"] and theirs["unknown"]
    assert theirs["full"]
    assert flooded.counters()["other"] == 0


@pytest.mark.slow
def test_queues_and_buckets_are_bounded(library, asked, card):
    running = library.open(0)
    frame = asked[BETA][0].frame
    states = [running.submit(frame, 0, 0, BETA) for _ in range(1100)]
    assert states.count(CallStatus.OK) == 1024 and set(states[1024:]) == {CallStatus.FULL}
    assert running.submit(asked[ALPHA][0].frame, 0) == CallStatus.OK
    running.wait()
    served(running)
    assert running.counters(BETA)["full"] == 76

    def beyond(now_ns: int) -> int:
        """How many frames of beta were beyond its guarantee, after one more."""
        assert running.submit(frame, now_ns, 0, BETA) == CallStatus.OK
        running.wait()
        served(running)
        return running.counters(BETA)["beyond"]

    length, burst = len(frame), card.tenants[BETA].burst
    passed = 1024
    while not beyond(0):
        passed += 1
    assert passed == burst // length
    # 1,000 bytes a second: the bucket is a frame fuller as soon as its bytes have come
    missing = length - burst % length
    assert beyond(missing * 10**6 - 1) == 2
    assert beyond(missing * 10**6) == 2
    assert beyond(missing * 10**6) == 3
    assert beyond(0) == 4  # time does not go back
    assert beyond((1 << 63) - 1) == 4
    assert running.counters(ALPHA)["beyond"] == 0


def test_frames_for_a_removed_network_spend_nothing_and_are_counted_as_such(library, asked, card):
    running = library.open(0)
    frame, weights = asked[BETA][0].frame, blob.dump(card.networks["beta/b"])
    place = list(card.networks).index("beta/b")
    fit = card.tenants[BETA].burst // len(frame)
    assert fit > 1
    assert running.load(place, None, BETA) == CallStatus.OK
    for _ in range(2 * fit):
        assert running.submit(frame, 0, 0, BETA) == CallStatus.ABSENT
    counted = running.counters(BETA)
    assert (counted["absent"], counted["beyond"]) == (2 * fit, 0)
    assert running.load(place, weights, BETA) == CallStatus.OK
    for _ in range(fit + 1):
        assert running.counters(BETA)["beyond"] == 0
        assert running.submit(frame, 0, 0, BETA) == CallStatus.OK
        running.wait()
        served(running)
    assert running.counters(BETA)["beyond"] == 1
    assert running.load(place, None, BETA) == CallStatus.OK
    assert running.submit(frame, 0, 0, BETA) == CallStatus.ABSENT


def test_frames_are_answered_by_the_network_that_stood_when_they_came(card, library, asked):
    running = library.open(0)
    place = list(card.networks).index("beta/b")
    old = card.networks["beta/b"]
    new = replace(random_model((23, 8, 2), np.random.default_rng(77)), input=old.input)
    each = asked[BETA][0]
    running.submit(each.frame, 0)
    assert running.load(place, blob.dump(new)) == CallStatus.OK
    running.submit(each.frame, 0)
    assert running.load(place, None, BETA) == CallStatus.OK
    assert running.submit(each.frame, 0) == CallStatus.ABSENT
    assert running.submit(asked[ALPHA][0].frame, 0) == CallStatus.OK
    running.wait()
    first, second = running.next(BETA), running.next(BETA)
    assert [f"{a.results[0].model:08x}" for a in (first, second)] == [
        old.digest[:8],
        new.digest[:8],
    ]
    check_answer(card, each, first)
    assert running.next(ALPHA) is not None
    # what is not beta's network, or not beta's to change, changes nothing
    other = random_model((23, 8, 3), np.random.default_rng(1))
    assert running.load(place, blob.dump(other)) == CallStatus.BAD_MODEL
    assert running.load(place, blob.dump(new)[:-4]) == CallStatus.BAD_MODEL
    assert running.load(place, b"\xff" * 100) == CallStatus.BAD_MODEL
    assert running.load(place, blob.dump(old), ALPHA) == CallStatus.FOREIGN
    assert running.load(99, blob.dump(old)) == CallStatus.FOREIGN
    assert running.submit(each.frame, 0) == CallStatus.ABSENT
    assert running.load(place, blob.dump(old), BETA) == CallStatus.OK
    assert running.submit(each.frame, 0) == CallStatus.OK


def test_a_tenant_comes_and_goes_while_anothers_traffic_flows(card: SoftwareCard, library, asked):
    """Three threads compute, one loads and removes beta's network: alpha loses nothing."""
    running = library.open(3)
    place = list(card.networks).index("beta/b")
    weights = blob.dump(card.networks["beta/b"])
    ended = threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            running.load(place, None)
            running.load(place, weights)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    sent = {ALPHA: [], BETA: []}
    try:
        for number in range(400):
            for tenant in (ALPHA, BETA):
                each = asked[tenant][number % 40]
                status = running.submit(each.frame, number * SECOND, number)
                assert status in (CallStatus.OK, CallStatus.ABSENT)
                assert (tenant, status) != (ALPHA, CallStatus.ABSENT)
                if status == CallStatus.OK:
                    sent[tenant].append(number)
            if number % 100 == 99:
                running.wait()
                for tenant, numbers in sent.items():
                    for n in numbers:
                        answer = running.next(tenant)
                        assert answer is not None and answer.cookie == n
                        check_answer(card, asked[tenant][n % 40], answer)
                    numbers.clear()
    finally:
        ended.set()
        thread.join()


def capture(frames) -> bytes:
    head = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return head + b"".join(
        struct.pack("=IIII", i, 0, len(f), len(f)) + f for i, f in enumerate(frames)
    )


def frames_in(data: bytes) -> list[bytes]:
    out, at = [], 24
    while at < len(data):
        size = struct.unpack_from("=I", data, at + 8)[0]
        out.append(data[at + 16 : at + 16 + size])
        at += 16 + size
    return out


def test_card_exec_answers_a_capture(card, directory, asked, tmp_path: Path):
    """Other frames pass, answers stand in their place, and beta's policy drops."""
    subprocess.run(["make", "-s", "-C", directory, "card-exec", "CFLAGS=-O0 -Werror"], check=True)
    control = tmp_path / "control"
    control.write_text(f"load alpha/a0 {directory}/models/00-alpha-a0.bin\nremove no\nload x\n")
    other = bytes(range(60))
    mine = [each for pair in zip(*asked, strict=True) for each in pair]
    done = subprocess.run(
        [directory / "card-exec", "-t", "2", "-c", control],
        input=capture([other, *(m.frame for m in mine)]),
        capture_output=True,
        check=True,
    )
    left = frames_in(done.stdout)
    assert left[0] == other
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    for each in mine:
        graph = card.graphs[each.graph]
        results = joined(graph.join, each.results)
        if any(r.is_about(results[0].verdict, results[0].margin) for r in graph.rules):
            continue  # dropped
        written = bytearray(each.frame)
        written[card.result_at : card.offset] = results[0].text.ljust(
            card.offset - card.result_at, b"\0"
        )
        expected[each.graph].append(bytes(written))
    for answers in expected.values():  # each tenant's in their order
        assert [f for f in left[1:] if f in answers] == answers
    assert len(left) == 1 + sum(map(len, expected.values()))
    log = done.stderr.decode()
    assert "load alpha/a0: done" in log and "remove no: no such network" in log
    assert "alpha,40,40,0,0,0,0,0,0,0" in log and "(wire),0,0,0,1" in log


def test_the_rate_of_a_tenant_changes_while_frames_flow(card, library, asked):
    """Frames are within the guarantee as long as a bucket of exact fractions has paid for them."""
    rng = np.random.default_rng(7)
    running, now, beyond, close = library.open(0), 10**18, 0, 0
    frame = asked[ALPHA][0].frame
    rate = card.tenants[ALPHA].rate
    burst = tokens = Fraction(card.tenants[ALPHA].burst)
    running.submit(b"", now)  # the clock begins
    for _ in range(2000):
        step = int(10 ** rng.uniform(2, 9.5))
        now += step
        tokens = min(burst, tokens + Fraction(step * rate, SECOND))
        if rng.random() < 0.2:
            rate, burst = (int(10 ** rng.uniform(0, most)) for most in (12, 5))
            assert running.set_rate(ALPHA, rate, burst, now) == CallStatus.OK
            tokens = min(tokens, burst)
            continue
        sent = frame.ljust(int(rng.integers(len(frame), 2000)), b"\0")
        assert running.submit(sent, now) == CallStatus.OK
        running.work(1)
        running.discard(ALPHA)
        counted = running.counters(ALPHA)["beyond"]
        if abs(tokens - len(sent)) > 1 + Fraction(rate, SECOND):  # it counts whole nanoseconds
            assert (counted > beyond) == (tokens < len(sent))
        else:
            close += 1
        tokens -= 0 if counted > beyond else len(sent)
        beyond = counted
    assert 200 < beyond < 1200 and close < 200
    assert running.asked(0) == running.counters(ALPHA)["admitted"]


def test_a_change_of_the_rate_gives_no_frame_away(library, asked):
    running, frame = library.open(0), asked[ALPHA][0].frame.ljust(1000, b"\0")
    assert running.set_rate(ALPHA, 1, 1000, 0) == CallStatus.OK
    for count in range(3):
        running.submit(frame, 0)
        running.work(1)
        assert running.counters(ALPHA)["beyond"] == count
        for rate, burst in ((10**12, 2**32 - 1), (1, 0), (1, 1000), (1, 1000)):
            assert running.set_rate(ALPHA, rate, burst, 0) == CallStatus.OK
    assert running.set_rate(ALPHA, 10**12, 1000, 0) == CallStatus.OK
    running.submit(frame, 1)  # in a nanosecond, the new rate has filled the bucket
    running.work(1)
    assert running.counters(ALPHA)["beyond"] == 2


@pytest.mark.parametrize(
    ("tenant", "rate", "burst", "caller", "status"),
    [
        (ALPHA, 0, 1, WIRE, CallStatus.BAD_RATE),
        (ALPHA, 10**12 + 1, 1, WIRE, CallStatus.BAD_RATE),
        (ALPHA, 2**64 - 1, 1, WIRE, CallStatus.BAD_RATE),
        (ALPHA, 1, 2**32, WIRE, CallStatus.BAD_RATE),
        (ALPHA, 1, 2**32 - 1, WIRE, CallStatus.OK),
        (ALPHA, 10**12, 0, WIRE, CallStatus.OK),
        (ALPHA, 1, 1, ALPHA, CallStatus.FOREIGN),
        (ALPHA, 1, 1, BETA, CallStatus.FOREIGN),
        (2, 1, 1, WIRE, CallStatus.FOREIGN),
        (WIRE, 1, 1, WIRE, CallStatus.FOREIGN),
    ],
)
def test_a_rate_has_bounds_and_only_the_operator_sets_it(
    library, asked, tenant, rate, burst, caller, status
):
    running, frame = library.open(0), asked[ALPHA][0].frame
    running.submit(frame, 0)
    assert running.set_rate(tenant, rate, burst, 0, caller) == status
    for now in (1, 2**62, 2**63 - 1):  # no sum of nanoseconds runs over
        running.submit(frame, now)
        assert running.work(9) > 0
    assert running.discard(ALPHA) == 4
