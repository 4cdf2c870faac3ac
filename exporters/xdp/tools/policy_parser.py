# SPDX-License-Identifier: Apache-2.0
"""Parses policies and rules as typed: ``attack=drop``, ``vlan=10,udp-port=53=slot:2``."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from n3ic.errors import UsageError
from n3ic.exporters.xdp.program import ACTIONS, Action, Verdict
from n3ic.exporters.xdp.resident import NO_VLAN, SlotRule
from n3ic.model.network import BinaryModel

_WITH_ARGUMENT = ("interface", "socket", "cpu", "mark")
_ENDS = {"socket": 64, "cpu": 64}  # number of entries of their maps
_OTHERS = ("shunt", "undecided", "aside")
_POLICY = "VERDICT=ACTION or VERDICT=ACTION:ARGUMENT, such as attack=drop or shunt=cpu:1"
_RULE = "KEY=VALUE,...=slot:N with the keys interface, vlan, udp-port and prefix"


def policy(text: str, classes: Sequence[str]) -> tuple[Verdict, Action, int | str]:
    """Parse a policy to verdict, action and argument, which for ``interface`` may be a name.

    Raises:
        UsageError: the text is not a policy, or its verdict or action is unknown.
    """
    name, equals, rest = text.rpartition("=")
    action, colon, argument = rest.partition(":")
    if not equals:
        raise UsageError(f"policy {text!r}: {_POLICY}")
    verdict: Verdict
    if name in classes:
        verdict = list(classes).index(name)
    elif name in _OTHERS:
        verdict = "shunted" if name == "shunt" else "undecided" if name == "undecided" else "aside"
    else:
        known = ", ".join([*classes, *_OTHERS])
        raise UsageError(f"policy {text!r}: no verdict {name!r}, there are {known}")
    found = next((a for a in ACTIONS if a == action), None)
    if found is None:
        raise UsageError(f"policy {text!r}: no action {action!r}, there are {', '.join(ACTIONS)}")
    if (found in _WITH_ARGUMENT) != bool(colon and argument):
        needs = "wants an argument" if found in _WITH_ARGUMENT else "has no argument"
        raise UsageError(f"policy {text!r}: {found} {needs}: {_POLICY}")
    if found == "interface":
        return verdict, found, argument
    return verdict, found, _number(text, argument or "0", _ENDS.get(found, 1 << 32))


def policies(
    texts: Sequence[str], classes: Sequence[str]
) -> list[tuple[Verdict, Action, int | str]]:
    """Parse policies of different verdicts; see :func:`policy`.

    Raises:
        UsageError: a text is not a policy, or a verdict has two.
    """
    found: dict[Verdict, tuple[str, tuple[Verdict, Action, int | str]]] = {}
    for text in texts:
        one = policy(text, classes)
        if one[0] in found:
            raise UsageError(f"policies {found[one[0]][0]!r} and {text!r}: one a verdict expected")
        found[one[0]] = text, one
    return [one for _, one in found.values()]


def idle_policies(texts: Sequence[str], model: BinaryModel) -> tuple[str, ...]:
    """One line for each policy that cannot or can hardly act with a network, and why.

    A policy acts on packets of a flow after its decision. A flow that is decided when it times out
    or is evicted from a full table has no such packets, because it leaves the table.
    """
    spec = model.meter
    found: list[str] = []
    if spec is None:
        return ()
    early = spec.decision.schedule or spec.decision.packets or spec.decision.after
    ends = " and ".join(end.upper() for end in spec.ends)
    for text in texts:
        verdict, action, _ = policy(text, model.classes)
        if action == "pass" or verdict in ("undecided", "aside"):
            continue
        if verdict == "shunted" and not model.shunt:
            found.append(
                f"policy {text!r} does nothing: {model.name} has no shunting threshold, so no "
                "flow gets the verdict shunt"
            )
        elif not early:
            acts = (
                f"acts on the packets from the one that ends a TCP flow by {ends}, and on no other"
                if ends
                else "does nothing"
            )
            found.append(
                f"policy {text!r} {acts}: the meter of {model.name} decides flows at their end, "
                "and a flow that ended is forgotten; extract with --packets N or --after SECONDS "
                "and train again to decide before"
            )
    return tuple(found)


def rule(text: str) -> SlotRule:
    """Parse a rule, which chooses a slot's model for flows.

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
    """The index of an interface.

    Raises:
        UsageError: no interface has that name.
    """
    try:
        return socket.if_nametoindex(name)
    except OSError as error:
        raise UsageError(f"there is no interface {name!r}") from error


def _number(text: str, value: str, end: int) -> int:
    try:
        number = int(value, 0)
    except ValueError:
        number = -1
    if not 0 <= number < end:
        raise UsageError(f"{text!r}: {value!r} is not a number below {end:,}")
    return number
