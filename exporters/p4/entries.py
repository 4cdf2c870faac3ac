"""The table entries of a network: its weights, masks, thresholds and biases, in three formats.

The same entries as ``simple_switch_CLI`` commands, as a P4Runtime ``WriteRequest`` in the JSON
mapping of protocol buffers, and as the runtime file of the p4lang tutorials. P4Runtime knows
tables and actions by number; the program fixes the numbers with ``@id``, so that the request
needs no P4Info.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from n3ic.exporters.p4.shared.pipeline import MODEL_BITS, SCORE_BITS, Pipeline

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
        """Bytes of action data, each parameter in whole bytes, as bmv2 keeps them."""
        return sum(-(-p.bits // 8) for p in self.parameters)


@dataclass(frozen=True)
class ControlIds:
    """Numbers of the tables and actions that the control plane sets."""

    tables: Mapping[str, int]
    actions: Mapping[str, int]

    def annotation(self, kind: str, name: str) -> str:
        """``@id(...)`` of a table or an action."""
        known = self.tables if kind == "table" else self.actions
        return f"@id({known[name]:#010x})"


def network_entries(network: Pipeline) -> tuple[DefaultEntry, ...]:
    """All entries of a network, the model's digest last: it says that the others are there."""
    entries = []
    for layer in network.layers:
        l, k = f"l{layer.index}", layer.inputs  # noqa: E741 - the layer's prefix
        for n in layer.neurons:
            data = [ActionParameter("weights", k, n.weights)]
            if n.mask is not None:
                data.append(ActionParameter("mask", k, n.mask))
            name = f"{l}_n{n.index}"
            entries.append(DefaultEntry(f"{name}_weights", f"{name}_xnor", tuple(data)))
        for n in layer.neurons:
            name = f"{l}_n{n.index}"
            if layer.hidden:
                bits = layer.difference_bits
                parameter = ActionParameter("threshold", bits, n.offset)
                entries.append(DefaultEntry(f"{name}_threshold", f"{name}_sign", (parameter,)))
            else:
                parameter = ActionParameter("bias", SCORE_BITS, n.offset)
                entries.append(DefaultEntry(f"{name}_bias", f"{name}_add_bias", (parameter,)))
    identity = ActionParameter("model_id", MODEL_BITS, network.model_id)
    entries.append(DefaultEntry("model", "set_model", (identity,)))
    return tuple(entries)


def ids_of(entries: tuple[DefaultEntry, ...]) -> ControlIds:
    """Numbers for the tables and actions of the entries and of the forwarding table."""
    tables = [*(e.table for e in entries), "forward"]
    actions = [*(e.action for e in entries), "cross", "to_port", "drop_packet"]
    return ControlIds(
        {name: TABLE_PREFIX << 24 | i for i, name in enumerate(tables, 1)},
        {name: ACTION_PREFIX << 24 | i for i, name in enumerate(actions, 1)},
    )


def cli_commands(entries: tuple[DefaultEntry, ...]) -> str:
    """Commands for ``simple_switch_CLI``, one an entry."""
    lines = []
    for e in entries:
        data = " ".join(f"{p.value:#0{2 + -(-p.bits // 4)}x}" for p in e.parameters)
        lines.append(f"table_set_default {e.table} {e.action} {data}")
    return "\n".join(lines) + "\n"


def p4runtime_request(entries: tuple[DefaultEntry, ...], ids: ControlIds) -> str:
    """A ``p4.v1.WriteRequest`` in the JSON mapping: bytes in base64, shortest form."""
    updates = [
        {
            "type": "MODIFY",
            "entity": {
                "tableEntry": {
                    "tableId": ids.tables[e.table],
                    "action": {
                        "action": {
                            "actionId": ids.actions[e.action],
                            "params": [
                                {"paramId": i, "value": _base64(p.value)}
                                for i, p in enumerate(e.parameters, 1)
                            ],
                        }
                    },
                    "isDefaultAction": True,
                }
            },
        }
        for e in entries
    ]
    request = {"deviceId": "0", "electionId": {"low": "1"}, "updates": updates}
    return json.dumps(request, indent=1) + "\n"


def tutorial_runtime(entries: tuple[DefaultEntry, ...]) -> str:
    """The runtime file that the p4lang tutorials load: entries by name, values as integers."""
    table_entries: list[dict[str, Any]] = [
        {
            "table": e.table,
            "default_action": True,
            "action_name": e.action,
            "action_params": {p.name: p.value for p in e.parameters},
        }
        for e in entries
    ]
    runtime = {
        "target": "bmv2",
        "p4info": "n3ic.p4info.txt",
        "bmv2_json": "n3ic.json",
        "table_entries": table_entries,
    }
    return json.dumps(runtime, indent=1) + "\n"


def _base64(value: int) -> str:
    # P4Runtime 1.3, 8.4: the canonical form has no leading zero bytes, and 0 is one byte.
    data = value.to_bytes(max(1, -(-value.bit_length() // 8)), "big")
    return base64.b64encode(data).decode("ascii")
