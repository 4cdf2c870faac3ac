# SPDX-License-Identifier: Apache-2.0
"""Reads a network back from the three entry files.

The code shares nothing with the writer, so that a mistake there shows here.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from n3ic.errors import VerifyError
from n3ic.exporters.p4.interpreter import P4Error, Switch
from n3ic.exporters.p4.interpreter.commands import SetDefault
from n3ic.exporters.p4.shared.decoding import Place, decoded_layers, held_digest
from n3ic.model.network import BinaryModel
from n3ic.targets.decoding import Decoded

_WRITTEN = re.compile(r"table_set_default [a-z0-9_]+ [a-z0-9_]+(?: 0x[0-9a-f]+)*")
_NUMBERED = re.compile(r'@name\("\.(\w+)"\) @id\((0x[0-9a-f]{8})\)\s+(table|action)\b')
_TABLE = re.compile(r"l(\d{1,9})_n(\d{1,9})_(weights|threshold|bias)")
_ACTIONS = {"weights": "xnor", "threshold": "sign", "bias": "add_bias"}
_NAMES = {"weights": ("weights", "mask"), "threshold": ("threshold",), "bias": ("bias",)}
_SHUNTING = {"shunting": ("shunt_below", "threshold"), "shunt_port": ("shunt_to", "egress_port")}
_READINGS = ["model", "model_again"]


@dataclass(frozen=True)
class DecodedEntry:
    """One entry of a file: the table, its default action, and the action's data."""

    table: str
    action: str
    data: tuple[int, ...]


def from_commands(text: str, name: str, program: Switch) -> list[DecodedEntry]:
    """Read the entries of a file of ``simple_switch_CLI`` commands.

    Raises:
        VerifyError: ``simple_switch_CLI`` would refuse or misread a line, or n3ic writes no such
            line; the error names the line.
    """
    try:
        commands = program.read(text)
    except P4Error as error:
        raise VerifyError(f"{name}: {error}") from error
    held = []
    for number, (line, command) in enumerate(zip(text.split("\n"), commands, strict=False), 1):
        if not isinstance(command, SetDefault) or _WRITTEN.fullmatch(line) is None:
            raise VerifyError(f"{name}, line {number}: not a table_set_default with its data")
        held.append(DecodedEntry(command.table, command.action, command.data))
    return held


def from_tutorial(text: str, name: str) -> list[DecodedEntry]:
    """Read the entries of a runtime file of the p4lang tutorials.

    Raises:
        VerifyError: the file is not such a runtime file.
    """
    data = json_of(text, name)
    try:
        listed = data["table_entries"]
        # Compared as a whole, so that an additional key is refused too.
        frame = {**data, "table_entries": []}
        if frame != {
            "target": "bmv2",
            "p4info": "n3ic.p4info.txt",
            "bmv2_json": "n3ic.json",
            "table_entries": [],
        }:
            raise VerifyError(f"{name}: target or files are not those of this export")
        return [_tutorial_entry(entry, name) for entry in listed]
    except (TypeError, KeyError, AttributeError) as error:
        raise VerifyError(f"{name}: not a runtime file: {error!r}") from error


def _tutorial_entry(entry: Any, name: str) -> DecodedEntry:
    parameters = entry["action_params"]
    held = DecodedEntry(entry["table"], entry["action_name"], tuple(parameters.values()))
    known = set(entry) == {"table", "default_action", "action_name", "action_params"}
    if not known or entry["default_action"] is not True:
        raise VerifyError(f"{name}: {held.table} has no default action")
    table = _TABLE.fullmatch(held.table)
    alone = _SHUNTING.get(held.table, ("", "model_id"))[1]
    expected = (alone,) if table is None else _NAMES[table[3]]
    if tuple(parameters) != expected[: len(parameters)]:
        raise VerifyError(f"{name}: {held.table} has the parameters {list(parameters)}")
    if any(type(value) is not int for value in held.data):  # in Python true is an integer
        raise VerifyError(f"{name}: {held.table} has a value that is not an integer")
    return held


def from_p4runtime(text: str, name: str, source: str) -> list[DecodedEntry]:
    """Read the entries of P4Runtime requests, which number tables and actions.

    Args:
        text: the requests in the JSON mapping.
        name: name of the file, for errors.
        source: P4 source, whose ``@id`` annotations number its tables and actions.

    Raises:
        VerifyError: the text is not such requests, or they do not clear the model's number, load
            the weights and set the number, in this order.
    """
    names = {(kind, int(number, 16)): said for said, number, kind in _NUMBERED.findall(source)}
    requests = json_of(text, name)
    held: list[DecodedEntry] = []
    try:
        for request in requests:
            frame = {**request, "updates": []}
            if frame != {"deviceId": "0", "electionId": {"low": "1"}, "updates": []}:
                raise VerifyError(f"{name}: device or election is not the one of this export")
            held.extend(_update(update, names, name) for update in request["updates"])
        sizes = [len(request["updates"]) for request in requests]
    except (TypeError, KeyError, AttributeError) as error:
        raise VerifyError(f"{name}: not P4Runtime requests: {error!r}") from error
    # A server may reorder the updates of one request, so each step needs a request of its own.
    if [sizes[:1], sizes[2:]] != [[2], [2]]:
        raise VerifyError(f"{name}: updates that need an order share a request")
    return held


def _update(update: Any, names: Mapping[tuple[str, int], str], name: str) -> DecodedEntry:
    entry = update["entity"]["tableEntry"]
    chosen = entry["action"]["action"]
    if update != {
        "type": "MODIFY",
        "entity": {
            "tableEntry": {
                "tableId": entry["tableId"],
                "action": {"action": {"actionId": chosen["actionId"], "params": chosen["params"]}},
                "isDefaultAction": True,
            }
        },
    }:
        raise VerifyError(f"{name}: an update does not modify a default action")
    numbers = (("table", entry["tableId"]), ("action", chosen["actionId"]))
    if any(number not in names for number in numbers):
        raise VerifyError(f"{name}: n3ic.p4 has no {' or '.join(f'{k} {i}' for k, i in numbers)}")
    data = action_data(chosen["params"], f"{name}: {names[numbers[0]]}")
    return DecodedEntry(names[numbers[0]], names[numbers[1]], data)


def action_data(parameters: Sequence[Mapping[str, Any]], where: str) -> tuple[int, ...]:
    """Read the data of an action of a P4Runtime update.

    Raises:
        VerifyError: the parameters are out of order, or a value is not canonical; ``where`` names
            the entry.
    """
    data = []
    for position, parameter in enumerate(parameters, 1):
        if set(parameter) != {"paramId", "value"} or parameter["paramId"] != position:
            raise VerifyError(f"{where} has parameters out of order")
        data.append(integer_of(parameter["value"], where))
    return tuple(data)


def integer_of(text: str, where: str) -> int:
    """Read an integer of a P4Runtime update: base64 of its bytes.

    Raises:
        VerifyError: the text is not such a value.
    """
    try:
        octets = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise VerifyError(f"{where}: a value is not base64") from error
    # Unused bits of the last digit may differ in text and decode to the same bytes.
    if base64.b64encode(octets).decode() != text:
        raise VerifyError(f"{where}: a value is not canonical base64")
    return int.from_bytes(octets, "big")


def decode_entries(
    artefact: str, held: Sequence[DecodedEntry], model: BinaryModel, shunt_port: int | None = None
) -> Decoded:
    """Decode the network that a file of entries loads into the program.

    Args:
        artefact: name of the file, for errors.
        held: entries of the file, in order.
        model: the model, which gives the shape, the masked layers, and the model's number.
        shunt_port: port for shunted packets; None if they leave as all others.

    Raises:
        VerifyError: an entry is missing, unknown or duplicated; or an answer could carry the
            model's number before all weights are loaded.
    """
    clear, weights, name = held[:2], held[2:-2], held[-2:]
    signature = "_".join(
        [str(model.input.n_bits)]
        + [f"{layer.n_outputs}{'' if layer.mask is None else 'm'}" for layer in model.layers]
    )
    values: dict[Place, int] = {}
    shunting: dict[str, int] = {}
    for entry in weights:
        if entry.table in _SHUNTING:
            if entry.action != _SHUNTING[entry.table][0] or len(entry.data) != 1:
                raise VerifyError(f"{artefact}: no such entry: {entry.table} with {entry.action}")
            if entry.table in shunting:
                raise VerifyError(f"{artefact}: {entry.table} is set twice")
            shunting[entry.table] = entry.data[0]
    if shunting.get("shunt_port") != shunt_port:
        raise VerifyError(
            f"{artefact}: shunted packets go to port {shunting.get('shunt_port')}, "
            f"the export's is {shunt_port}"
        )
    signature += "s" if "shunting" in shunting else ""
    if sorted((e.table, e.action, e.data) for e in clear) != [
        (table, f"no_{table}", ()) for table in _READINGS
    ]:
        raise VerifyError(f"{artefact}: does not begin by clearing the model's number")
    if sorted((e.table, e.action) for e in name) != [
        (table, f"set_{table}_{signature}") for table in _READINGS
    ] or any(len(e.data) != 1 for e in name):
        raise VerifyError(f"{artefact}: does not end with the model's number for {signature}")
    for entry in weights:
        if entry.table in _SHUNTING:
            continue
        found = _TABLE.fullmatch(entry.table)
        if found is None or entry.action != f"l{found[1]}_n{found[2]}_{_ACTIONS[found[3]]}":
            raise VerifyError(f"{artefact}: no such entry: {entry.table} with {entry.action}")
        layer, neuron = int(found[1]), int(found[2])
        kinds = ("weights", "mask") if found[3] == "weights" else ("limit",)
        if (found[3] == "bias") != (layer == len(model.hidden)) and found[3] != "weights":
            raise VerifyError(f"{artefact}: layer {layer} has no {found[3]}")
        if not 1 <= len(entry.data) <= len(kinds):
            raise VerifyError(f"{artefact}: {entry.table} has {len(entry.data)} values")
        for kind, value in zip(kinds, entry.data, strict=False):
            if (kind, layer, neuron) in values:
                raise VerifyError(f"{artefact}: {entry.table} is set twice")
            values[kind, layer, neuron] = value
    digest = held_digest([entry.data[0] for entry in name], model)
    layers = decoded_layers(artefact, values, model)
    return Decoded(artefact, layers, digest=digest, shunt=shunting.get("shunting"))


def json_of(text: str, name: str) -> Any:
    """Parse JSON; a text that is none is a VerifyError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VerifyError(f"{name}: not JSON: {error}") from error
