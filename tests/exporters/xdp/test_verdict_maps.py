# SPDX-License-Identifier: Apache-2.0
"""Verdicts that outlive flows, and the budget of new flows, against their model in Python."""

import ipaddress
import itertools
import os
import random
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

from n3ic.exporters.xdp import source, verdict_lists
from n3ic.exporters.xdp.layout import SUBJECT, VERDICT, table_entries
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.replay import replay, replayable, traffic
from n3ic.exporters.xdp.verdict_lists import ACTIONS, Limits, rate
from n3ic.meter.packet import LINK_ETHERNET, parse
from n3ic.meter.reference import ReferenceMeter
from n3ic.meter.standard import standard_spec
from tests.support.metered_models import counting_network, page_schedule, unsure_later
from tests.support.metering import load, network, set_policy
from tests.support.siphash import apart
from tests.support.verdict_maps import remove_listed, set_verdict
from tests.support.verdict_model import Entry, VerdictModel

DROP, PASS = 1, 2
SPEC = standard_spec(schedule=(2, 4))  # and at the end of a flow
SECOND = 10**9 // SPEC.tick_ns
CUT = ("IP header cut short", "ports cut short")
OTHERS = {-1: "shunted"}
COUNTED = (
    "allowed", "blocked", "limited", "dropped", "spared", "verdicts", "refused", "excess",
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("clang", "kernel")


@pytest.fixture(scope="module")
def image(clang, kernel):
    """The program of a table, compiled when it is first asked for; close scores are shunted."""
    structure = structure_of([network(SPEC, shunt=2)])

    class Programs(dict[str, bytes]):
        def __missing__(self, table):
            files = source.meter_program(SPEC, structure, per_cpu=False, table=table)
            self[table] = source.compile_program(files, source.METER)
            return self[table]

    return Programs()


@pytest.fixture(scope="module")
def schedules(clang, kernel):
    """A network that decides at each of four packets, and its program."""
    model = network(standard_spec(schedule=(1, 2, 3, 4)))
    structure = structure_of([model])
    files = source.meter_program(model.meter, structure, per_cpu=False, table="buckets")
    return model, source.compile_program(files, source.METER)


def reference(model, maps, frames):
    """Action of each frame, and the records of all flows that are metered."""
    meter, actions, records = ReferenceMeter(SPEC), [], []

    def decide(flow_records, now):
        for record in flow_records:
            inputs = {n: np.array([v]) for n, v in record.features.items()}
            scores = model.infer(model.encode(inputs)).scores
            verdict = int(model.verdicts(scores)[0])
            records.append((record, verdict))
            maps.decide(record, verdict, now)

    def count(packet, stepped_back):
        now = meter.clock.now
        decide(list(meter._end_all("idle") if stepped_back else meter._expire(now)), now)
        joined = meter._join_fragment(packet)
        judged = maps.judge(joined or packet, now)
        if judged == "drop":
            actions.append("drop")
            return
        key = joined and meter._key(joined)
        new = key and meter._find(key)[0] is None
        if new and judged != "pass" and not maps.may_begin(packet, now):
            actions.append("excess")
            return
        decide(list(meter._count(packet, stepped_back)), now)
        flow = meter._find(key)[0] if key else None
        verdict = maps.in_force.get(flow.number, "undecided") if flow else "aside"
        actions.append("pass" if judged else verdict)

    for frame in frames:
        packet = parse(LINK_ETHERNET, *frame)
        if isinstance(packet, str):
            actions.append("aside")
            continue
        for ready, stepped_back in meter.clock.follow(packet, packet.time):
            count(ready, stepped_back)
    for ready, stepped_back in meter.clock.finish():
        count(ready, stepped_back)
    for record in meter.finish():
        decide([record], record.last)
    return actions, records


def policy_result(maps, action, counters):
    """What is done with a packet whose flow has a verdict."""
    if action in ("drop", "pass"):
        return DROP if action == "drop" else PASS
    name, *_ = maps.policies.get(OTHERS.get(action, action), maps.policies.get(action, ("pass",)))
    if name != "drop":
        return PASS
    counters["spared" if maps.limits.dry_run else "dropped"] += 1
    return PASS if maps.limits.dry_run else DROP


def check(image, table, seed, limits, policies, allowed=(), listed=(), shared=()):
    """Run frames through program and model, and compare all that can be seen."""
    model = network(SPEC, shunt=2)
    maps = VerdictModel(limits, {**policies, -1: policies.get("shunted", ("pass", 0, "none", 0))},
                        SPEC.tick_ns)  # fmt: skip
    frames = [f for f in replayable(traffic(SPEC, 600, seed=seed)) if sound(f)]
    given = {"limits": limits, "flows": 256, "secret": bytes(range(16))}  # no bucket is full
    with load(model, image=image[table], table=table, **given) as programs:
        for verdict, policy in policies.items():
            set_policy(programs, verdict, *policy)
        for action, (text, until) in [
            *(("allow", each) for each in allowed), *(("shared", each) for each in shared)
        ]:  # fmt: skip
            where = verdict_lists.verdict_subject(text, SPEC)
            set_verdict(programs.maps, where, action, 0, 0, until)
            maps.allowed[ipaddress.ip_network(text)] = entry(action, 0, until)
        for text, action, argument, until in listed:
            where = verdict_lists.verdict_subject(text, SPEC)
            set_verdict(programs.maps, where, action, argument, 0, until)
            maps.listed[ipaddress.ip_network(text)] = entry(action, argument, until)
        wanted, records = reference(model, maps, frames)
        results = []
        events = replay(
            programs, frames, lambda f: results.append(programs.program.test_run(f).result)
        )
        counters = programs.counters()
        shown = verdict_lists.list_verdicts(programs.maps, 0, SPEC.tick_ns, {})
        guard = int.from_bytes(programs.maps["guards"].lookup(0)[8:16], "little")
    dropped = Counter()
    assert results == [policy_result(maps, a, dropped) for a in wanted]
    assert [(r.number, r.packets, r.registers, tuple(r.features.values()), v) for r, v in records
            ] == [
        (int(e["number"]), int(e["packets"]), tuple(e["registers"].tolist()),
         tuple(e["features"].tolist()), int(e["verdict"])) for e in events
    ]  # fmt: skip
    assert {n: counters[n] for n in COUNTED} == {n: (maps.counters + dropped)[n] for n in COUNTED}
    assert guard == maps.blocked <= limits.max_blocked
    for name, wants in (("allowed", maps.allowed), ("listed", maps.listed)):
        assert {e.target: e.packets for e in shown[name]} == {
            short(n): h.packets for n, h in wants.items()
        }
    packets_by_source = {e.target: e.packets for e in shown["decided"] if "-" not in e.target}
    assert packets_by_source == {short(n): h.packets for n, h in maps.sources.items()}
    flows = sorted(e.packets for e in shown["decided"] if "-" in e.target)
    assert flows == sorted(h.packets for h in maps.flows.values())
    return Counter(maps.counters) + dropped


def sound(frame):
    """Whether a frame is no cut one whose addresses are there: the model takes whole packets."""
    packet = parse(LINK_ETHERNET, *frame)
    return not isinstance(packet, str) or packet not in CUT


def entry(action, argument, until):
    return Entry(action, argument, float("inf") if until is None else until)


def short(name):
    return str(name.network_address if name.prefixlen == name.max_prefixlen else name)


@pytest.mark.slow
@pytest.mark.parametrize("table", [pytest.param("lru", marks=pytest.mark.slow), "buckets"])
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2, 3, 4, 5, 7, 9))]
)
def test_every_packet_is_treated_as_the_model_of_the_maps_says(image, table, seed):
    """Random policies of every scope, allowed and listed sources that expire, few hosts."""
    r = random.Random(seed)
    choices = [
        ("drop", 0), ("rate-limit", rate(r.choice([1, 3]))[0]), ("mark", 7), ("pass", 0),
    ]  # fmt: skip
    policies: dict[Any, tuple[Any, ...]] = {
        verdict: (*r.choice(choices), r.choice(["none", "flow", "host", "prefix"]),
                  r.randrange(1, 20 * SECOND))
        for verdict in (0, 1, 2, "shunted")
    }  # fmt: skip
    policies = {v: ("drop", *p[1:]) if p[0] == "rate-limit" and p[2] == "none" else p
                for v, p in policies.items()}  # fmt: skip
    if seed % 2:  # at packet 4 or at the end of a flow; not at the first decision on a source
        policies = {v: (*p, r.choice([0, 3, 4]), r.choice([1, 2, 3])) for v, p in policies.items()}
    if seed % 3 == 2:  # a source that is judged again soon has its verdict for longer
        policies = {v: (*p, *(0, 1)[len(p) - 4 :], 40 * SECOND) for v, p in policies.items()}
    limits = Limits(max_blocked=r.choice([1, 2, 300]), prefix_bits=(30, 126))
    end = 400 * SECOND
    counted = check(
        image, table, seed, limits, policies,
        allowed=[("10.0.0.0/24", end // 4), ("::a00:1", end // 2), ("10.0.0.2", end // 2)],
        listed=[("10.0.0.0/30", "rate-limit", rate(2)[0], end // 2),
                ("10.0.0.3", "drop", 0, end // 3), ("::/64", "drop", 0, end // 8)],
        shared=[("10.0.1.0/25", end), ("::a00:100/121", end // 2)] if seed % 4 == 3 else (),
    )  # fmt: skip
    assert counted["allowed"] and counted["blocked"]


@pytest.mark.slow
def test_a_ceiling_holds_and_room_comes_back(image):
    policies = dict.fromkeys((0, 1, 2), ("drop", 0, "host", 3 * SECOND))
    counted = check(image, "buckets", 5, Limits(max_blocked=2), policies)
    assert counted["refused"] > 5 and counted["verdicts"] > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("from_packet", "times", "blocked"),
    [(0, 1, 1), (4, 1, 4), (5, 1, None), (0, 2, 5), (0, 3, 9), (2, 2, 6), (0, 4, None)],
)
@pytest.mark.parametrize("scope", ["host", "prefix"])
def test_one_flow_blocks_nobody_where_the_policy_asks_for_more(
    schedules, from_packet, times, blocked, scope
):
    """Three flows of four packets, decided at each; `blocked` is the one that blocks the source."""
    model, image = schedules
    with load(model, image=image, table="buckets") as programs:
        for verdict in range(3):
            set_policy(programs, verdict, "drop", 0, scope, SECOND, from_packet, times)
        for time in range(1, 13):
            frame = udp("10.0.0.1", port=(time - 1) // 4)
            programs.program.test_run(programs.replayed(frame, len(frame), time))
        packet_counts = [
            v.packets
            for v in verdict_lists.list_verdicts(programs.maps, 13, SPEC.tick_ns, {})["decided"]
        ]
        assert packet_counts == ([] if blocked is None else [12 - blocked])


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        [(1, 1, 0), (2, 11, 0), (3, 20, 1)],
        [(1, 1, 0), (1, 11, 0), (2, 12, 1)],  # a flow counts anew once its source's were forgotten
        [(1, 1, 0), (2, 11, 0), (2, 12, 0), (1, 13, 1)],
    ],
)
def test_decisions_are_forgotten_after_the_time_to_live(schedules, steps):
    """Two flows within ten units of time block their source; each step is one's packet."""
    model, image = schedules
    with load(model, image=image, table="buckets") as programs:
        for verdict in range(3):
            set_policy(programs, verdict, "drop", 0, "host", 10, 0, 2)
        for port, time, count in steps:
            frame = udp("10.0.0.1", port=port)
            programs.program.test_run(programs.replayed(frame, len(frame), time))
            assert len(verdict_lists.list_verdicts(programs.maps, time, 1, {})["decided"]) == count


def test_a_source_that_is_blocked_again_soon_is_blocked_for_twice_as_long(schedules):
    """Blocked for 10 units, again within 10 of its end: for 20, then for 25, which is the most."""
    model, image = schedules
    with load(model, image=image, table="buckets") as programs:
        for verdict in range(3):
            set_policy(programs, verdict, "drop", 0, "host", 10, 0, 1, 25)
        for port, (time, seconds, repeats) in enumerate(
            [(1, 10, 0), (20, 20, 1), (59, 25, 2), (108, 25, 3), (158, 10, 0)]
        ):
            frame = udp("10.0.0.1", port=port)
            programs.program.test_run(programs.replayed(frame, len(frame), time))
            (entry,) = verdict_lists.list_verdicts(programs.maps, time, 10**9, {})["decided"]
            assert (entry.left_s, entry.repeats) == (seconds, repeats)
            assert entry.flow_packets == 1 and entry.margin is not None


@pytest.mark.parametrize("scope", ["host", "prefix"])
def test_of_an_address_with_many_users_only_the_flow_is_blocked(schedules, scope):
    model, image = schedules
    with load(model, image=image, table="buckets") as programs:
        for verdict in range(3):
            set_policy(programs, verdict, "drop", 0, scope, SECOND)
        where = verdict_lists.verdict_subject("10.0.0.0/24", SPEC)
        set_verdict(programs.maps, where, "shared", 0, 0, None)
        results = []
        for port, time in [(1, 1), (1, 2), (2, 3), (2, 4)]:
            frame = udp("10.0.0.1", port=port)
            results.append(
                programs.program.test_run(programs.replayed(frame, len(frame), time)).result
            )
        assert results == [DROP, DROP, DROP, DROP]
        shown = verdict_lists.list_verdicts(programs.maps, 5, SPEC.tick_ns, {})
        assert [v.action for v in shown["allowed"]] == ["shared"]
        targets = [v.target for v in shown["decided"]]
        assert len(targets) == 2 and all("-" in target for target in targets)


@pytest.fixture(scope="module")
def page(clang, kernel):
    """The meter of the page on attacks, and its program for networks of one input bit."""
    spec = standard_spec(schedule=page_schedule())
    model = counting_network(spec, [1]).with_shunt(1)
    files = source.meter_program(spec, structure_of([model]), per_cpu=False, table="buckets")
    return spec, source.compile_program(files, source.METER)


def flow_results(programs, packets):
    """What becomes of the packets of one flow, a microsecond apart."""
    frame = udp("10.0.0.1")
    run = programs.program.test_run
    return [run(programs.replayed(frame, len(frame), t)).result for t in range(1, 1 + packets)]


@pytest.mark.slow
def test_a_flood_in_a_flow_that_began_harmless_is_dropped_from_its_100th_packet_on(page):
    spec, image = page
    with load(counting_network(spec, [26]), image=image, table="buckets") as programs:
        set_policy(programs, 1, "drop")
        assert flow_results(programs, 300) == [PASS] * 99 + [DROP] * 201


@pytest.mark.first_case
@pytest.mark.parametrize(
    "shunt", [("rate-limit", 1, "host", SECOND), (), ("pass", 0, "flow", SECOND)]
)
def test_an_unsure_decision_leaves_a_sure_one_in_force(page, shunt):
    """Nor does it put what its own policy says where later packets find it."""
    spec, image = page
    with load(unsure_later(spec, 3), image=image, table="buckets") as programs:
        set_policy(programs, 0, "drop")
        if shunt:
            set_policy(programs, "shunted", *shunt)
        assert flow_results(programs, 30) == [DROP] * 30
        verdicts = [int(e["verdict"]) for e in programs.events()]
        assert verdicts == [0, *[-1] * sum(n in range(3, 31) for n in spec.decision.schedule)]
        assert programs.counters()["verdicts"] == 0


@pytest.mark.slow
def test_a_sure_decision_takes_the_place_of_any(page):
    spec, image = page
    with load(unsure_later(spec, 3), image=image, table="buckets") as programs:
        set_policy(programs, "shunted", "drop")  # does not act: the flow's first decision is sure
        assert flow_results(programs, 9) == [PASS] * 9
    model = counting_network(spec, [3], ("attack", "honest"))
    with load(model, image=image, table="buckets") as programs:
        set_policy(programs, 0, "drop")
        assert flow_results(programs, 9) == [DROP] * 2 + [PASS] * 7
    unsure = counting_network(spec, [3], bias=(0, 1), shunt=2)  # at first, then of an attack
    with load(unsure, image=image, table="buckets") as programs:
        set_policy(programs, "shunted", "drop")
        set_policy(programs, 1, "pass")
        assert flow_results(programs, 9) == [DROP] * 2 + [PASS] * 7


@pytest.mark.slow
def test_a_dry_run_counts_and_drops_nothing(image):
    policies = dict.fromkeys((0, 1, 2, "shunted"), ("drop", 0, "host", 9 * SECOND))
    counted = check(image, "buckets", 6, Limits(dry_run=True), policies)
    assert counted["spared"] > 100
    assert not counted["blocked"] + counted["dropped"]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["lru", "buckets"])
def test_a_source_begins_only_so_many_flows(image, table):
    policies = {"excess": ("drop", 0, "none", 0)}
    counted = check(image, table, 7, Limits(new_flows=1), policies, allowed=[("10.0.0.3", None)])
    assert counted["excess"] > 20


def udp(source, later=0, port=0x400):
    """A UDP frame from an address; as a later fragment, without ports."""
    offset = (3).to_bytes(2, "big") if later else bytes(2)
    head = bytes([0x45, 0, 0, 28, 0, 9]) + offset + bytes([64, 17, 0, 0])
    ends = ipaddress.ip_address(source).packed + bytes([192, 168, 0, 1])
    ports = port.to_bytes(2, "big") + b"\x00\x35"
    return bytes(12) + b"\x08\x00" + head + ends + ports + b"\x00\x08\x00\x00" + bytes(18)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cut", "fragment"])
def test_packets_without_ports_are_judged_by_their_addresses(image, kind):
    """Whoever is blocked does not get through by cutting packets."""

    def result(source, time):
        frame = udp(source, later=kind == "fragment")
        frame = frame[:36] if kind == "cut" else frame
        return programs.program.test_run(programs.replayed(frame, len(frame), time)).result

    with load(network(SPEC, shunt=2), image=image["buckets"], table="buckets") as programs:
        programs.program.test_run(programs.replayed(udp("10.0.0.9"), 60, 5))
        blocked = verdict_lists.verdict_subject("10.0.0.1", SPEC)
        set_verdict(programs.maps, blocked, "drop", 0, 5, 1000)
        assert [result("10.0.0.1", 6), result("10.0.0.2", 7)] == [DROP, PASS]
        remove_listed(programs.maps, blocked)
        assert result("10.0.0.1", 8) == PASS
        assert programs.counters()["blocked"] == 1


@pytest.mark.slow
def test_two_cpus_block_no_more_hosts_than_may_be(image):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")

    def sent(cpu, frames):
        os.sched_setaffinity(0, {cpu})  # of this thread
        for frame in frames:
            programs.program.test_run(frame, repeat=SPEC.decision.schedule[0])

    secret, flows = bytes(range(16)), 4096
    sources = (udp(f"10.1.{i >> 8}.{i & 255}") for i in itertools.count())
    frames = [*itertools.islice(apart(sources, secret, table_entries("buckets", flows)), 200)]
    limits = Limits(max_blocked=50)
    model = network(SPEC, shunt=2)
    given = {"table": "buckets", "flows": flows, "secret": secret, "clock": "kernel"}
    with load(model, image=image["buckets"], limits=limits, **given) as programs:
        for verdict in (0, 1, 2, "shunted"):
            set_policy(programs, verdict, "drop", scope="host", ttl=3600 * SECOND)
        parts = frames[:100], frames[100:]
        threads = [threading.Thread(target=sent, args=at) for at in zip(cpus, parts, strict=False)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counters = programs.counters()
        assert programs.maps["hosts"].count() == programs.blocked_hosts() == 50
        assert counters["verdicts"] + counters["refused"] == 200


@pytest.mark.slow
@pytest.mark.parametrize("table", ["buckets", "lru"])
def test_entries_carry_the_key_that_a_typed_flow_has(image, table):
    """What user space reads of the table names its flow, and is what a verdict on it is put at."""
    with load(network(SPEC, shunt=2), image=image[table], table=table, flows=512) as programs:
        for frame, length, time in replayable(traffic(SPEC, 300, seed=9)):
            programs.program.test_run(programs.replayed(frame, length, time))
        keys, _ = programs.flows()
        if table == "lru":
            assert {k.tobytes() for k in keys} == set(programs.maps["flows"].keys())
        assert len(keys) > 20
        for key in keys:
            where = verdict_lists.verdict_subject(verdict_lists.flow_text(key), SPEC)
            assert where.flow and where.key == key.tobytes()


def test_a_verdict_holds_to_its_last_tick_and_the_nearest_one_counts(image):
    """A prefix that expired hides no shorter one; a flow's verdict goes before its host's."""

    def at(time, action, text, until):
        set_verdict(
            programs.maps, verdict_lists.verdict_subject(text, SPEC), action, 0, time, until
        )

    def results(times):
        frame = udp("10.0.0.1")
        run = programs.program.test_run
        return [run(programs.replayed(frame, len(frame), time)).result for time in times]

    with load(network(SPEC, shunt=2), image=image["buckets"], table="buckets") as programs:
        at(0, "drop", "10.0.0.0/24", 40)
        at(0, "pass", "10.0.0.1", 20)
        assert results([1, 19, 20, 39, 40]) == [PASS, PASS, DROP, DROP, PASS]
        key = np.zeros(1, SUBJECT)
        key["address"][0, :4], key["bits"], key["address_bytes"] = (10, 0, 0, 1), 32, 4
        row = (80, 40, 0, 0, ACTIONS.index("drop"), 0, 0, 32, 1, 0, 0, 0)
        programs.maps["hosts"].update(key.tobytes(), np.array([row], VERDICT).tobytes())
        at(40, "pass", "10.0.0.1:1024-192.168.0.1:53/udp", 60)
        assert results([41, 59, 60, 79, 80]) == [PASS, PASS, DROP, DROP, PASS]


@pytest.mark.slow
def test_a_flow_s_end_without_packets_since_its_decision_blocks_nobody_anew():
    """Dropped packets are not metered, so such an end would only say again what was said."""
    spec = standard_spec(schedule=(1, 8))
    idle, frame = spec.idle_timeout, udp("10.0.0.1")

    def result(time):
        return programs.program.test_run(programs.replayed(frame, len(frame), time)).result

    with load(network(spec), table="buckets") as programs:
        for verdict in range(3):
            set_policy(programs, verdict, "drop", 0, scope="host", ttl=idle)
        assert [result(5), result(6), result(4 + idle)] == [DROP] * 3
        programs.end_idle(6 + idle)
        assert [str(event["why"]) for event in programs.events()] == ["0", "4"]  # packets, idle
        counters = programs.counters()
        assert (counters["verdicts"], counters["blocked"]) == (1, 2)
        # The flow that follows is judged by its own packets.
        assert result(7 + idle) == DROP
        assert programs.counters()["verdicts"] == 2
        assert programs.counters()["dropped"] == 2
