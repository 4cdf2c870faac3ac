# SPDX-License-Identifier: Apache-2.0
"""Verdicts that outlive flows, again in plain Python: what the maps of the program must do.

Allowed sources first, then what the operator listed, then a flow's verdict, a host's, a prefix's;
the longest prefix counts. A verdict holds until its time to live is over. Decisions keep at most so
many hosts away at one time; room of expired verdicts is looked for ten times a second at most.
"""

import ipaddress
from collections import Counter
from dataclasses import dataclass, field

from n3ic.exporters.xdp.verdict_lists import SECOND_NS, Limits, rate

KEEP_AWAY = ("drop", "rate-limit", "interface", "socket")


@dataclass
class Entry:
    """A verdict, and the time at which the tokens of its rate are all there again."""

    action: str
    argument: int
    until: float
    weight: int = 0
    packets: int = 0
    full_ns: int = 0
    since: float = 0
    repeats: int = 0


@dataclass
class VerdictModel:
    """The maps; `policies` gives action, argument, scope and time to live by verdict.

    Behind these may stand the first packet whose decision counts, and how many flows it takes.
    """

    limits: Limits
    policies: dict
    tick_ns: int
    allowed: dict = field(default_factory=dict)  # network: verdict
    listed: dict = field(default_factory=dict)
    flows: dict = field(default_factory=dict)  # pair of ends and protocol: verdict
    sources: dict = field(default_factory=dict)  # network: verdict by decisions
    strikes: dict = field(default_factory=dict)  # network: end of their time, numbers of flows
    decided: dict = field(
        default_factory=dict
    )  # number of a flow: its packets at the last decision
    in_force: dict = field(default_factory=dict)  # number of a flow: the verdict on its packets
    budgets: dict = field(default_factory=dict)
    counters: Counter = field(default_factory=Counter)
    blocked: int = 0
    tidied: int = 0

    def judge(self, packet, now):
        """``pass`` or ``drop`` without the meter, or None."""
        address = ipaddress.ip_address(packet.source)
        flow = self.flows.get(ends(packet))
        flow = flow if flow and flow.until > now else None
        allowed = longest(self.allowed, address, now)
        if flow and flow.action == "allow":
            allowed = flow
        if allowed and allowed.action != "shared":
            allowed.packets += 1
            self.counters["allowed"] += 1
            return "pass"
        wide = self.limits.prefix_bits[address.version == 6]
        for entry in (
            longest(self.listed, address, now),
            flow,
            live(self.sources.get(network(address, address.max_prefixlen)), now),
            live(self.sources.get(network(address, wide)), now),
        ):
            if entry:
                return self.obey(entry, now)
        return None

    def obey(self, entry, now):
        """What a verdict does with a packet."""
        entry.packets += 1
        if entry.action == "pass":
            return "pass"
        if entry.action == "rate-limit":
            token, entry.full_ns = take(
                entry.full_ns, now * self.tick_ns, entry.argument, SECOND_NS - entry.argument
            )
            if token:
                return None
        elif entry.action != "drop":
            return entry.action
        if self.limits.dry_run:
            self.counters["spared"] += 1
            return None
        self.counters["blocked" if entry.action == "drop" else "limited"] += 1
        return "drop"

    def decide(self, record, verdict, now):
        """Treat packets by a decision; an unsure one (below 0) leaves what a sure one said."""
        fresh = record.packets != self.decided.get(record.number)
        self.decided[record.number] = record.packets
        if verdict < 0 and self.in_force.get(record.number, -1) >= 0:
            return
        self.in_force[record.number] = verdict
        if fresh:
            self.enact(record.key, verdict, now, record.packets, record.number)

    def enact(self, key, verdict, now, packets, number):
        """Put the verdict of a flow decided after so many packets where later ones find it."""
        policy = self.policies.get(verdict, ("pass", 0, "none", 0))
        defaults = ("pass", 0, "none", 0, 0, 1, 0)
        action, argument, scope, ttl, from_packet, times, most = policy + defaults[len(policy) :]
        address = ipaddress.ip_address(key.source)
        made = Entry(action, argument, now + ttl, since=now)
        given = longest(self.allowed, address, now)
        if scope == "none" or (scope != "flow" and given and given.action != "shared"):
            return
        if given and given.action == "shared":
            scope = "flow"
        if scope == "flow":
            old = live(self.flows.get(ends(key)), now)
            if old and old.action == "allow":
                return
            made.packets = old.packets if old else 0
            self.flows[ends(key)] = made
            self.counters["verdicts"] += 1
            return
        whole = address.max_prefixlen
        bits = self.limits.prefix_bits[whole == 128] if scope == "prefix" else whole
        name = network(address, bits)
        if packets < from_packet:
            return
        if times > 1:  # decisions whose policy acts at once are not counted
            end, flows = self.strikes.get(name, (0, set()))
            end, flows = (end, flows) if end > now else (now + ttl, set())
            self.strikes[name] = end, {*flows, number}
            if len(self.strikes[name][1]) < times:
                return
        if action in KEEP_AWAY:
            made.weight = 1 << max(0, min(whole, 64) - bits)
        old = self.sources.get(name)
        if old and most and remembered(old, now):
            again = old.until <= now
            made.repeats = old.repeats + again
            made.until = now + min(max(ttl, (old.until - old.since) * (1 + again)), most)
        if made.weight and not self.fits(made, old):
            if now - self.tidied >= SECOND_NS // 10 // self.tick_ns:
                self.sources = {n: h for n, h in self.sources.items() if remembered(h, now)}
                for each in self.sources.values():
                    each.weight *= each.until > now
                self.blocked = sum(h.weight for h in self.sources.values())
                self.tidied, old = now, self.sources.get(name)
            if not self.fits(made, old):
                self.counters["refused"] += 1
                return
        made.packets = old.packets if live(old, now) else 0
        self.blocked += made.weight - (old.weight if old else 0)
        self.sources[name] = made
        self.counters["verdicts"] += 1

    def fits(self, made, old):
        """Whether so many hosts may be kept away."""
        without = self.blocked - (old.weight if old else 0)
        return without + made.weight <= self.limits.max_blocked

    def may_begin(self, packet, now):
        """Whether a source may begin a flow now."""
        if not self.limits.new_flows:
            return True
        address = ipaddress.ip_address(packet.source)
        name = network(address, min(address.max_prefixlen, 64))
        interval, burst = rate(self.limits.new_flows)
        full = self.budgets.get(name, 0)
        token, self.budgets[name] = take(full, now * self.tick_ns, interval, burst)
        self.counters["excess"] += not token
        return token


def take(full, now, interval, burst):
    """Take a token of a bucket; whether there was one, and when the bucket is full again."""
    since = max(full, now)
    return (True, since + interval) if since - now <= burst else (False, full)


def remembered(entry, now):
    """Whether a verdict holds, or ended no longer ago than it held."""
    return now < entry.until or now - entry.until < entry.until - entry.since


def live(entry, now):
    return entry if entry and entry.until > now else None


def network(address, bits):
    return ipaddress.ip_network((address, bits), strict=False)


def longest(verdicts, address, now):
    """The verdict of the longest prefix that holds."""
    matches = [
        (name.prefixlen, entry)
        for name, entry in verdicts.items()
        if name.version == address.version and address in name and entry.until > now
    ]
    return max(matches, key=lambda one: one[0])[1] if matches else None


def ends(key):
    """Both directions of a flow as one."""
    sides = (key.source, key.source_port), (key.destination, key.destination_port)
    return frozenset(sides), key.protocol
