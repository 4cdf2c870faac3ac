# SPDX-License-Identifier: Apache-2.0
"""Computes the entries of look-up tables, as ``simple_switch_CLI`` commands and for P4Runtime.

As for binary networks there are three steps: clear the model's number, write, set the number; see
:mod:`n3ic.exporters.p4.table_entries`. Each file has two forms. The first fills a switch that has
just started. The second changes the entries of a running one to those of another model with the
same indices: there the entry of index ``i`` has the handle ``i``, because the first file adds them
in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from n3ic.exporters.p4.shared.pipeline import MODEL_BITS, PORT_BITS
from n3ic.exporters.p4.table_entries import (
    ActionParameter,
    ControlIds,
    DefaultEntry,
    Steps,
    base64_of,
    default_command,
    default_update,
    hexadecimal,
    ids_of,
    parameters_of,
)
from n3ic.exporters.p4.tables.pipeline import TablesPipeline
from n3ic.targets.packets import SCORE_BITS


@dataclass(frozen=True)
class MatchEntry:
    """An entry of a table with one exact key."""

    table: str
    action: str
    key: int
    key_bits: int
    parameters: tuple[ActionParameter, ...]

    @property
    def data_bytes(self) -> int:
        """Bytes of action data, with each parameter in whole bytes, as bmv2 stores them."""
        return sum(-(-p.bits // 8) for p in self.parameters)


@dataclass(frozen=True)
class TableEntries:
    """All that the control plane writes, in order.

    Attributes:
        clear: clears the model's number.
        matches: the entries of the look-up tables.
        defaults: the offsets, and the shunting threshold and port if there are any.
        setting: sets the model's number.
    """

    clear: tuple[DefaultEntry, ...]
    matches: tuple[MatchEntry, ...]
    defaults: tuple[DefaultEntry, ...]
    setting: tuple[DefaultEntry, ...]


def table_entries(network: TablesPipeline, shunt_port: int | None = None) -> TableEntries:
    """Compute the entries of a model.

    Args:
        network: the look-up tables.
        shunt_port: port for shunted packets; None if they leave as all others.
    """
    matches = tuple(
        MatchEntry(
            f"t{step.index}",
            f"t{step.index}_entry",
            key,
            len(step.inputs),
            tuple(
                ActionParameter(f"entry{c.sum}", step.width, c.stored[key]) for c in step.columns
            ),
        )
        for step in network.tables
        for key in range(step.size)
    )
    offsets = tuple(ActionParameter(f"offset{s.score}", SCORE_BITS, s.offset) for s in network.sums)
    defaults = [DefaultEntry("offsets", "add_offsets", offsets)]
    if network.shunts:
        threshold = ActionParameter("threshold", SCORE_BITS, network.shunt)
        defaults.append(DefaultEntry("shunting", "shunt_below", (threshold,)))
    if shunt_port is not None:
        port = ActionParameter("egress_port", PORT_BITS, shunt_port)
        defaults.append(DefaultEntry("shunt_port", "shunt_to", (port,)))
    identity = (ActionParameter("model_id", MODEL_BITS, network.model_id),)
    readings = ("model", "model_again")
    return TableEntries(
        tuple(DefaultEntry(table, f"no_{table}", ()) for table in readings),
        matches,
        tuple(defaults),
        tuple(DefaultEntry(t, f"set_{t}_{network.signature}", identity) for t in readings),
    )


def control_ids(entries: TableEntries) -> ControlIds:
    """Number the tables and actions of the entries and of the forwarding table."""
    tables = {e.table: DefaultEntry(e.table, e.action, ()) for e in entries.matches}
    steps: Steps = (entries.clear, (*tables.values(), *entries.defaults), entries.setting)
    return ids_of(steps)


def cli_commands(entries: TableEntries, *, update: bool = False) -> str:
    """Write the entries as commands for ``simple_switch_CLI``, one per line.

    Args:
        entries: the entries.
        update: whether to change the entries of a running switch instead of adding them.
    """
    lines = [
        *map(default_command, entries.clear),
        *(_match_command(e, update) for e in entries.matches),
        *map(default_command, (*entries.defaults, *entries.setting)),
    ]
    return "\n".join(lines) + "\n"


def _match_command(e: MatchEntry, update: bool) -> str:
    data = " ".join(map(hexadecimal, e.parameters))
    if update:
        return f"table_modify {e.table} {e.action} {e.key} {data}"
    key = hexadecimal(ActionParameter("", e.key_bits, e.key))
    return f"table_add {e.table} {e.action} {key} => {data}"


def p4runtime_requests(entries: TableEntries, ids: ControlIds, *, update: bool = False) -> str:
    """Write each step as one ``p4.v1.WriteRequest`` in the JSON mapping, with bytes in base64.

    Args:
        entries: the entries.
        ids: numbers of tables and actions.
        update: whether to change the entries of a running switch instead of inserting them.
    """
    matches = [_match_update(e, ids, update) for e in entries.matches]
    steps = (
        _updates(entries.clear, ids),
        [*matches, *_updates(entries.defaults, ids)],
        _updates(entries.setting, ids),
    )
    requests = [
        {"deviceId": "0", "electionId": {"low": "1"}, "updates": updates} for updates in steps
    ]
    return json.dumps(requests, indent=1) + "\n"


def _updates(entries: Iterable[DefaultEntry], ids: ControlIds) -> list[dict[str, Any]]:
    return [default_update(entry, ids) for entry in entries]


def _match_update(e: MatchEntry, ids: ControlIds, update: bool) -> dict[str, Any]:
    return {
        "type": "MODIFY" if update else "INSERT",
        "entity": {
            "tableEntry": {
                "tableId": ids.tables[e.table],
                "match": [{"fieldId": 1, "exact": {"value": base64_of(e.key)}}],
                "action": {
                    "action": {
                        "actionId": ids.actions[e.action],
                        "params": parameters_of(e.parameters),
                    }
                },
            }
        },
    }
