# SPDX-License-Identifier: Apache-2.0
"""Computes the table entries of a network, and writes them in the formats of control planes.

The entries hold weights, masks, thresholds and biases. A network that shunts flows has one more,
the smallest margin that is not shunted. The formats are ``simple_switch_CLI`` commands, P4Runtime
``WriteRequest`` messages as text and in the JSON mapping of protocol buffers, calls for
``bfrt_python``, and the runtime file of the p4lang tutorials. P4Runtime identifies tables and
actions by number; the program fixes the numbers with ``@id``, so the requests need no P4Info.

The entries are written in three steps. The first clears the model's number in answers, and the last
sets the new one, so answers in between claim no model. The action of the last step carries the
program's signature in its name and number. A program of another shape or with other masks refuses
it, and its answers keep claiming no model.

``simple_switch_CLI`` goes on after a command that is refused. Its commands therefore clear a table
before they add its entries, so that no switch of this program, whatever it holds, refuses one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from n3ic.exporters.p4.lanes import lane_layers
from n3ic.exporters.p4.shared.pipeline import MODEL_BITS, PORT_BITS, MatchActionPipeline
from n3ic.targets.packets import SCORE_BITS

PRIORITY = 1  # of ternary entries, no two of which match the same key
_BFRT_START = "# SPDX-License-Identifier: Apache-2.0\np4 = bfrt.n3ic.pipe"
_BFRT_END = "bfrt.complete_operations()"
_WRITE_REQUEST = "# proto-file: p4/v1/p4runtime.proto\n# proto-message: p4.v1.WriteRequest\n"
TABLE_PREFIX, ACTION_PREFIX = 0x02, 0x01  # P4Runtime specification 1.3, 6.3.1


@dataclass(frozen=True)
class ActionParameter:
    """One parameter of an action: its name, width and value."""

    name: str
    bits: int
    value: int


@dataclass(frozen=True)
class DefaultEntry:
    """The default action of a keyless table, with its data."""

    table: str
    action: str
    parameters: tuple[ActionParameter, ...]

    @property
    def data_bytes(self) -> int:
        """Bytes of action data, with each parameter in whole bytes, as bmv2 stores them."""
        return sum(-(-p.bits // 8) for p in self.parameters)


@dataclass(frozen=True)
class MatchEntry(DefaultEntry):
    """An entry of a table with one key: an exact one, or with a mask a ternary one."""

    key: ActionParameter
    mask: ActionParameter | None = None


@dataclass(frozen=True)
class ControlIds:
    """The numbers of the tables and actions that the control plane writes."""

    tables: Mapping[str, int]
    actions: Mapping[str, int]

    def annotation(self, kind: str, name: str) -> str:
        """Format the ``@id(...)`` annotation of a table or an action."""
        known = self.tables if kind == "table" else self.actions
        return f"@id({known[name]:#010x})"


Steps = tuple[tuple[DefaultEntry, ...], ...]


def network_entries(network: MatchActionPipeline, shunt_port: int | None = None) -> Steps:
    """Compute a network's entries in three steps: clear the number, weights, set the number.

    Args:
        network: the network.
        shunt_port: port for shunted packets; None if they leave like all others.
    """
    entries = []
    for layer in lane_layers(network.layers):
        l = f"l{layer.index}"  # noqa: E741 - the layer's prefix
        table, name = ("thresholds", "threshold") if layer.hidden else ("biases", "bias")
        bits = layer.counter_bits if layer.hidden else SCORE_BITS
        offsets = _parameters(name, bits, layer.offsets)
        entries.append(DefaultEntry(f"{l}_{table}", f"{l}_set_{table}", offsets))
        for part in layer.parts:
            weights = _parameters("weights", layer.count_bits, part.weights)
            masks = _parameters("mask", layer.count_bits, part.masks)
            number = part.index
            entries.append(
                DefaultEntry(f"{l}_weights{number}", f"{l}_xnor{number}", weights + masks)
            )
    threshold = network.shunt if network.shunts else None
    clear, setting = model_entries(network.model_id, network.signature)
    return clear, (*entries, *shunting_entries(threshold, shunt_port)), setting


def _parameters(name: str, bits: int, values: Sequence[int]) -> tuple[ActionParameter, ...]:
    return tuple(ActionParameter(f"{name}{i}", bits, value) for i, value in enumerate(values))


def shunting_entries(threshold: int | None, shunt_port: int | None) -> tuple[DefaultEntry, ...]:
    """Compute the entries of the smallest margin that is not shunted and of the port."""
    entries = []
    if threshold is not None:
        smallest = ActionParameter("threshold", SCORE_BITS, threshold)
        entries.append(DefaultEntry("shunting", "shunt_below", (smallest,)))
    if shunt_port is not None:
        port = ActionParameter("egress_port", PORT_BITS, shunt_port)
        entries.append(DefaultEntry("shunt_port", "shunt_to", (port,)))
    return tuple(entries)


def model_entries(model_id: int, signature: str) -> Steps:
    """Compute the entries that clear the model's number and those that set it."""
    identity = (ActionParameter("model_id", MODEL_BITS, model_id),)
    readings = ("model", "model_again")
    clear = tuple(DefaultEntry(table, f"no_{table}", ()) for table in readings)
    setting = tuple(DefaultEntry(table, f"set_{table}_{signature}", identity) for table in readings)
    return clear, setting


def ids_of(steps: Steps) -> ControlIds:
    """Number the tables and actions of the entries and of the forwarding table.

    Numbers are consecutive, except for the actions of the last step. Those are hashes of their
    names, so programs with other signatures do not have them.
    """
    clear, weights, setting = steps
    entries = (*clear, *weights)
    tables = [*dict.fromkeys(e.table for e in entries), "forward"]
    actions = [*dict.fromkeys(e.action for e in entries), "cross", "to_port", "drop_packet"]
    return ControlIds(
        {table: TABLE_PREFIX << 24 | i for i, table in enumerate(tables, 1)},
        {action: ACTION_PREFIX << 24 | i for i, action in enumerate(actions, 1)}
        # Bit 23 keeps the hashes apart from the consecutive numbers.
        | {e.action: ACTION_PREFIX << 24 | 1 << 23 | _number(e.action) for e in setting},
    )


def _number(name: str) -> int:
    """Hash a name to a number below 2^23."""
    return int.from_bytes(hashlib.sha256(name.encode("ascii")).digest()[:4], "big") >> 9


def cli_commands(steps: Steps) -> str:
    """Write the entries as commands for ``simple_switch_CLI``, one per line.

    The commands fill an empty switch, and replace the entries of one that holds others.

    Args:
        steps: the entries; those of a table with an exact key are in the order of their keys,
            from 0.
    """
    number, entries, setting = steps
    keyed = dict.fromkeys(e.table for e in entries if isinstance(e, MatchEntry))
    lines = (
        *map(_command, number),
        *(f"table_clear {table}" for table in keyed),
        *map(_command, (*entries, *setting)),
    )
    return "".join(f"{line}\n" for line in lines)


def _command(e: DefaultEntry) -> str:
    data = [_hexadecimal(p) for p in e.parameters]
    if not isinstance(e, MatchEntry):
        return " ".join(("table_set_default", e.table, e.action, *data))
    key = _hexadecimal(e.key)
    if e.mask is not None:
        key, data = f"{key}&&&{_hexadecimal(e.mask)}", [*data, str(PRIORITY)]
    return " ".join(("table_add", e.table, e.action, key, "=>", *data))


def _hexadecimal(p: ActionParameter) -> str:
    return f"{p.value:#0{2 + -(-p.bits // 4)}x}"


def bfrt_calls(steps: Steps) -> str:
    """Write the entries as calls for ``bfrt_python``, in the order of the commands.

    Keys come first and without names: a value, or a value, its mask and a priority.
    """
    number, entries, setting = steps
    keyed = dict.fromkeys(e.table for e in entries if isinstance(e, MatchEntry))
    calls = (
        *map(_call, number),
        *(f"p4.{table}.clear()" for table in keyed),
        *map(_call, (*entries, *setting)),
    )
    return "".join(f"{line}\n" for line in (_BFRT_START, *calls, _BFRT_END))


def _call(e: DefaultEntry) -> str:
    verb, keys = "set_default_with", list[str]()
    if isinstance(e, MatchEntry):
        verb, keys = "add_with", [_hexadecimal(e.key)]
        keys += [] if e.mask is None else [_hexadecimal(e.mask), str(PRIORITY)]
    data = (f"{p.name}={_hexadecimal(p)}" for p in e.parameters)
    return f"p4.{e.table}.{verb}_{e.action}({', '.join((*keys, *data))})"


def p4runtime_texts(steps: Steps, ids: ControlIds) -> tuple[str, ...]:
    """Write each step as the text of one ``p4.v1.WriteRequest``; see :func:`p4runtime_requests`."""
    return tuple(_WRITE_REQUEST + _text(request) for request in _requests(steps, ids, update=False))


def _text(message: Mapping[str, Any], indent: str = "") -> str:
    """Write a message in the JSON mapping as protobuf text, with every byte as an escape."""
    lines = []
    for key, value in message.items():
        name = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                lines.append(f"{indent}{name} {{\n{_text(each, indent + '  ')}{indent}}}\n")
            else:
                lines.append(f"{indent}{name}: {_scalar(each)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    if isinstance(value, bytes):
        return '"' + "".join(f"\\{octet:03o}" for octet in value) + '"'
    return "true" if value is True else str(value)


def p4runtime_requests(steps: Steps, ids: ControlIds, *, update: bool = False) -> str:
    """Write each step as one ``p4.v1.WriteRequest`` in the JSON mapping, with bytes in base64.

    A server may reorder the updates within a request (P4Runtime specification, batching and
    ordering of updates), so each request must be sent after the answer to the previous one.

    Args:
        steps: the entries.
        ids: numbers of tables and actions.
        update: whether to change the entries of tables with a key instead of inserting them.
    """
    requests = _requests(steps, ids, update=update)
    return json.dumps(requests, indent=1, default=lambda b: base64.b64encode(b).decode()) + "\n"


def _requests(steps: Steps, ids: ControlIds, *, update: bool) -> list[dict[str, Any]]:
    return [
        {
            "deviceId": "0",
            "electionId": {"low": "1"},
            "updates": [_update(e, ids, update) for e in step],
        }
        for step in steps
    ]


def _update(e: DefaultEntry, ids: ControlIds, update: bool) -> dict[str, Any]:
    parameters = [{"paramId": i, "value": _octets(p.value)} for i, p in enumerate(e.parameters, 1)]
    entry: dict[str, Any] = {"tableId": ids.tables[e.table]}
    action = {"action": {"actionId": ids.actions[e.action], "params": parameters}}
    if not isinstance(e, MatchEntry):
        entry |= {"action": action, "isDefaultAction": True}
        return {"type": "MODIFY", "entity": {"tableEntry": entry}}
    match: dict[str, Any] = {"fieldId": 1, "exact": {"value": _octets(e.key.value)}}
    entry |= {"match": [match], "action": action}
    if e.mask is not None:
        ternary = {"value": _octets(e.key.value), "mask": _octets(e.mask.value)}
        entry |= {"match": [{"fieldId": 1, "ternary": ternary}], "priority": PRIORITY}
    return {"type": "MODIFY" if update else "INSERT", "entity": {"tableEntry": entry}}


def tutorial_runtime(steps: Steps) -> str:
    """Write the runtime file of the p4lang tutorials: entries by name, values as integers."""
    table_entries: list[dict[str, Any]] = [
        {
            "table": e.table,
            **_tutorial_match(e),
            "action_name": e.action,
            "action_params": {p.name: p.value for p in e.parameters},
        }
        for e in chain.from_iterable(steps)
    ]
    runtime = {
        "target": "bmv2",
        "p4info": "n3ic.p4info.txt",
        "bmv2_json": "n3ic.json",
        "table_entries": table_entries,
    }
    return json.dumps(runtime, indent=1) + "\n"


def _tutorial_match(e: DefaultEntry) -> dict[str, Any]:
    if not isinstance(e, MatchEntry):
        return {"default_action": True}
    if e.mask is None:
        return {"match": {e.key.name: e.key.value}}
    return {"match": {e.key.name: [e.key.value, e.mask.value]}, "priority": PRIORITY}


def _octets(value: int) -> bytes:
    # P4Runtime 1.3, 8.4: the canonical form has no leading zero bytes, and 0 is one byte.
    return value.to_bytes(max(1, -(-value.bit_length() // 8)), "big")
