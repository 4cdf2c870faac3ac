# SPDX-License-Identifier: Apache-2.0
"""Parses policies and rules as typed: ``attack=block:host,ttl=60``, ``vlan=10=slot:2``."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from n3ic.errors import UsageError
from n3ic.exporters.xdp.program import Verdict
from n3ic.exporters.xdp.resident import NO_VLAN, SlotRule
from n3ic.exporters.xdp.verdict_lists import (
    ACTIONS,
    ALLOWING,
    PREFIX_BITS,
    SCOPES,
    Action,
    Scope,
    rate,
)
from n3ic.model.classifier import Classifier

TTL_S = 60.0  # default for policies without ttl=
_TYPED = tuple(a for a in ACTIONS if a not in ALLOWING)  # those are only for the operator
_WITH_ARGUMENT = ("interface", "socket", "cpu", "mark", "rate-limit", "mirror")
_ENDS = {"socket": 64, "cpu": 64}  # number of entries of their maps
_OTHERS: dict[str, Verdict] = {
    "shunt": "shunted", "undecided": "undecided", "aside": "aside", "excess": "excess"
}  # fmt: skip
_POLICY = (
    "VERDICT=ACTION[:ARGUMENT][,for=flow|host|prefix][,ttl=SECONDS][,max-ttl=SECONDS]"
    "[,from=PACKET][,times=N], such as attack=drop, attack=block:host,ttl=60,times=3 or shunt=cpu:1"
)
_ELSEWHERE = {
    "redirect": "use interface:NAME, socket:QUEUE or cpu:N",
}
_RULE = "KEY=VALUE,...=slot:N with the keys interface, vlan, udp-port and prefix"


@dataclass(frozen=True)
class VerdictPolicy:
    """The action on packets with a certain verdict.

    Attributes:
        verdict: a class, or one of the other verdicts.
        action: the action.
        argument: argument of the action: for ``interface`` a name, and for ``rate-limit`` the
            nanoseconds between two packets.
        scope: later packets to which the action also applies.
        ttl_s: seconds for which it applies to them.
        max_ttl_s: the most seconds, where a host or prefix that is decided so again within as long
            as its last verdict held gets one that holds for twice as long; 0 for ``ttl_s`` each
            time.
        prefix_bits: prefix lengths for IPv4 and IPv6, if the scope is ``prefix``.
        from_packet: first packet of a flow whose decision counts for a host or prefix; 0 for any.
        times: flows of a host or prefix that must be decided so within ``ttl_s``; each counts once.
    """

    verdict: Verdict
    action: Action
    argument: int | str = 0
    scope: Scope = "none"
    ttl_s: float = 0
    prefix_bits: tuple[int, int] = PREFIX_BITS
    from_packet: int = 0
    times: int = 1
    max_ttl_s: float = 0


def policy(text: str, classes: Sequence[str]) -> VerdictPolicy:
    """Parse a policy.

    Raises:
        UsageError: the text is not a policy, or its verdict or action is unknown.
    """
    named: dict[str, Verdict] = {**_OTHERS, **{name: i for i, name in enumerate(classes)}}
    # Take the longest name that matches, because a class may be named "a=b".
    name = max((n for n in named if text.startswith(f"{n}=")), key=len, default="")
    if not name:
        typed, equals, _ = text.partition(",")[0].rpartition("=")
        why = f"no verdict {typed!r}, there are {', '.join(named)}" if equals else _POLICY
        raise UsageError(f"policy {text!r}: {why}")
    first, *options = text[len(name) + 1 :].split(",")
    action, colon, argument = first.partition(":")
    scope, ttl, longest = "", None, 0.0
    counts = {"from": 0, "times": 1}
    if action == "block":
        action, scope, argument, colon = "drop", argument, "", ""
        if not scope:
            raise UsageError(f"policy {text!r}: block needs flow, host or prefix: {_POLICY}")
    verb, value = _action(text, action, argument, bool(colon))
    for option in options:
        key, _, value_text = option.partition("=")
        if key == "for" and value_text:
            scope = value_text
        elif key == "ttl" and value_text:
            ttl = _seconds(text, key, value_text)
        elif key == "max-ttl" and value_text:
            longest = _seconds(text, key, value_text)
        elif key in counts and value_text:
            counts[key] = _number(text, value_text, 1 << 32)
        else:
            raise UsageError(f"policy {text!r}: no option {option!r}: {_POLICY}")
    kind, *bits = scope.split(":")
    of: Scope = next((s for s in SCOPES[1:] if s == kind), "none")
    if scope and (of == "none" or len(bits) > 2 * (of == "prefix")):
        raise UsageError(f"policy {text!r}: {scope!r} is not flow, host or prefix: {_POLICY}")
    if of == "none" and (verb == "rate-limit" or ttl is not None):
        raise UsageError(f"policy {text!r}: expected ,for=flow, ,for=host or ,for=prefix")
    if of != "none" and (name in ("undecided", "aside", "excess") or verb in ("socket", "cpu")):
        raise UsageError(f"policy {text!r}: only decisions to drop, mark, rate-limit, pass or "
                         "redirect to an interface hold for later packets")  # fmt: skip
    if of not in ("host", "prefix") and (longest or counts != {"from": 0, "times": 1}):
        raise UsageError(
            f"policy {text!r}: from=, times= and max-ttl= are for hosts and prefixes: block:host"
        )
    bit_counts = [_number(text, b, end) for b, end in zip(bits, (33, 129), strict=False)]
    if 0 in bit_counts:
        raise UsageError(f"policy {text!r}: a prefix of 0 bits is every address")
    four, six = [*bit_counts, *PREFIX_BITS[len(bit_counts) :]]
    seconds = 0.0 if of == "none" else TTL_S if ttl is None else ttl
    if longest and longest < seconds:
        raise UsageError(f"policy {text!r}: max-ttl={longest:g}: expected {seconds:g} or more")
    return VerdictPolicy(
        named[name], verb, value, of, seconds, (four, six), counts["from"], counts["times"], longest
    )


def _action(text: str, action: str, argument: str, has_colon: bool) -> tuple[Action, int | str]:
    """Parse an action and its argument."""
    kind = next((a for a in _TYPED if a == action), None)
    if kind is None:
        why = _ELSEWHERE.get(action, f"there are block, {', '.join(_TYPED)}")
        raise UsageError(f"policy {text!r}: no action {action!r}: {why}")
    if (kind in _WITH_ARGUMENT) != bool(has_colon and argument):
        needs = "needs an argument" if kind in _WITH_ARGUMENT else "takes no argument"
        raise UsageError(f"policy {text!r}: {kind} {needs}: {_POLICY}")
    if kind in ("interface", "mirror"):
        return kind, argument
    value = _number(text, argument or "0", _ENDS.get(kind, 1 << 32))
    return kind, rate(value)[0] if kind == "rate-limit" else value


def operators_action(text: str) -> tuple[Action, int]:
    """Parse the action of an operator's verdict: ``drop``, ``rate-limit:N`` or ``mark:N``.

    Raises:
        UsageError: the text is not such an action.
    """
    action, colon, argument = text.partition(":")
    if action not in ("drop", "rate-limit", "mark"):
        raise UsageError(f"--action {text!r}: expected drop, rate-limit:N (packets/s) or mark:N")
    kind, value = _action(text, action, argument, bool(colon))
    return kind, int(value)


def policies(texts: Sequence[str], classes: Sequence[str]) -> list[VerdictPolicy]:
    """Parse policies of different verdicts; see :func:`policy`.

    Raises:
        UsageError: a text is not a policy, two policies have the same verdict, or two name
            prefixes of different sizes.
    """
    by_verdict: dict[Verdict, tuple[str, VerdictPolicy]] = {}
    for text in texts:
        one = policy(text, classes)
        if one.verdict in by_verdict:
            first = by_verdict[one.verdict][0]
            raise UsageError(f"policies {first!r} and {text!r}: expected one per verdict")
        by_verdict[one.verdict] = text, one
    parsed_policies = [one for _, one in by_verdict.values()]
    if len({one.prefix_bits for one in parsed_policies if one.scope == "prefix"}) > 1:
        raise UsageError("policies name prefixes of several sizes: expected one size")
    return parsed_policies


def check_policies(texts: Sequence[str], model: Classifier) -> None:
    """Check that each policy can act with a network.

    A policy for a flow acts on its packets after the decision. If the meter decides flows only at
    their end, no such packets are left, because the flow leaves the table.

    Raises:
        UsageError: a policy can never act; the error says why, and what to do.
    """
    spec = model.meter
    if spec is None:
        return
    early = spec.decision.schedule or spec.decision.packets or spec.decision.after
    for text in texts:
        one = policy(text, model.classes)
        if one.action == "pass" or one.verdict in ("undecided", "aside", "excess"):
            continue
        if one.verdict == "shunted" and not model.shunt:
            raise UsageError(
                f"policy {text!r} can never act: {model.name} has no shunting threshold, so no "
                "flow gets the verdict shunt; choose one with n3ic shunt, or leave the policy out"
            )
        if one.scope == "none" and not early:
            name = model.classes[one.verdict] if isinstance(one.verdict, int) else "shunt"
            raise UsageError(
                f"policy {text!r} acts on no flow that runs: the meter of {model.name} decides "
                "flows at their end, when at most the packet that ends them is left. Treat later "
                f"packets of their sources ({name}=block:host,ttl=60), or extract with --packets N "
                "or --after SECONDS and train again, to decide while flows run"
            )
        if spec.decision.packets and not spec.decision.repeat:
            last = spec.decision.packets
            if one.from_packet > last:
                raise UsageError(
                    f"policy {text!r} can never act: the meter of {model.name} decides each flow "
                    f"once, at packet {last} at the latest: expected from={last} or less"
                )


def check_times(model: Classifier) -> None:
    """Check that the time after which a network's meter decides flows can have an effect.

    Raises:
        UsageError: each flow is already decided at its first packet.
    """
    decision = None if model.meter is None else model.meter.decision
    if decision and decision.after and 1 in (decision.packets, *decision.schedule[:1]):
        raise UsageError(
            f"{model.name}: its meter decides each flow at packet 1, so --after never decides one "
            "(it is for flows that were not decided before): extract without --after, or without "
            "packet 1, and train again"
        )


def rule(text: str) -> SlotRule:
    """Parse a rule, which assigns flows to a slot and so to its model.

    Raises:
        UsageError: the text is not a rule.
    """
    conditions, equals, slot = text.rpartition("=")
    if not equals or not slot.startswith("slot:"):
        raise UsageError(f"rule {text!r}: {_RULE}")
    interface = vlan = udp_port = bits = 0
    address = b""
    for part in filter(None, conditions.split(",")):
        key, _, value = part.partition("=")
        if key == "interface":
            interface = index_of(value)
        elif key == "vlan":
            vlan = NO_VLAN if value == "none" else _number(text, value, NO_VLAN)
        elif key == "udp-port":
            udp_port = _number(text, value, 1 << 16)
        elif key == "prefix":
            try:
                network = ipaddress.ip_network(value)
            except ValueError as error:
                raise UsageError(f"rule {text!r}: {error}") from error
            address, bits = network.network_address.packed, network.prefixlen
        else:
            raise UsageError(f"rule {text!r}: no key {key!r}: {_RULE}")
    return SlotRule(_number(text, slot[5:], 1 << 8), interface, vlan, udp_port, address, bits)


def index_of(name: str) -> int:
    """Return the index of an interface.

    Raises:
        UsageError: no interface has that name.
    """
    try:
        return socket.if_nametoindex(name)
    except OSError as error:
        raise UsageError(f"there is no interface {name!r}") from error


def _seconds(text: str, key: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1e9:
        raise UsageError(f"policy {text!r}: {key}={value}: expected seconds, such as {key}=60")
    return seconds


def _number(text: str, value: str, end: int) -> int:
    try:
        number = int(value, 0)
    except ValueError:
        number = -1
    if not 0 <= number < end:
        raise UsageError(f"{text!r}: {value!r} is not a number below {end:,}")
    return number
