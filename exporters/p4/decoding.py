# SPDX-License-Identifier: Apache-2.0
"""Reads a network back from the files of entries.

The code shares nothing with the writer, so that a mistake there shows here.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from n3ic.errors import VerifyError
from n3ic.exporters.p4.interpreter import P4Error, Switch
from n3ic.exporters.p4.interpreter.commands import SetDefault, TableAdd, TableClear
from n3ic.exporters.p4.interpreter.tables import Masked
from n3ic.exporters.p4.shared.decoding import Place, decoded_layers, digest_of_numbers
from n3ic.model.network import BinaryModel
from n3ic.targets.decoding import Decoded

_WRITTEN = re.compile(
    r"table_(set_default [a-z0-9_]+ [a-z0-9_]+(?: 0x[0-9a-f]+)*"
    r"|add [a-z0-9_]+ [a-z0-9_]+ 0x[0-9a-f]+ =>(?: 0x[0-9a-f]+)+"
    r"|add [a-z0-9_]+ [a-z0-9_]+ 0x[0-9a-f]+&&&0x[0-9a-f]+ =>(?: 0x[0-9a-f]+)+ 1"
    r"|clear [a-z0-9_]+)"
)
_NUMBERED = re.compile(r'@name\("\.(\w+)"\) @id\((0x[0-9a-f]{8})\)\s+(table|action)\b')
_FIELD = re.compile(
    r"((?:  )*)(\}|([a-z_]+)( \{|: (?:\d{1,20}|true|INSERT|MODIFY"
    r'|"(?:\\[0-3][0-7]{2})+")))'
)
_MESSAGE = "# proto-file: p4/v1/p4runtime.proto\n# proto-message: p4.v1.WriteRequest\n"
_CALL = re.compile(r"p4\.([a-z0-9_]+)\.(set_default|add)_with_([a-z0-9_]+)\(([a-z0-9_=, ]*)\)")
_CLEARED = re.compile(r"p4\.([a-z0-9_]+)\.clear\(\)")
_TABLE = re.compile(r"(l\d{1,9})_(weights\d{1,9}|thresholds|biases)")
_PARAMETERS = {
    "weights": re.compile(r"(weights\d+ )+(mask\d+ )*"),
    "thresholds": re.compile(r"(threshold\d+ )+"),
    "biases": re.compile(r"(bias\d+ )+"),
}
_FIELD_BITS, _LEAST_LANE, _MOST_LANE = 2048, 64, 1024
_SHUNTING = {"shunting": ("shunt_below", "threshold"), "shunt_port": ("shunt_to", "egress_port")}
_READINGS = ["model", "model_again"]


@dataclass(frozen=True)
class DecodedEntry:
    """One entry of a file: table, action and its data.

    Attributes:
        key: None for a default action.
        mask: of a ternary key; None for an exact one.
    """

    table: str
    action: str
    data: tuple[int, ...]
    key: int | None = None
    mask: int | None = None


def from_commands(text: str, name: str, program: Switch) -> list[DecodedEntry]:
    """Read the entries of a file of ``simple_switch_CLI`` commands.

    A table is cleared once, after the model's number and before its entries are added: a switch
    that holds other entries refuses none of them. Exact keys are in order.

    Args:
        text: the commands.
        name: name of the file, for errors.
        program: the compiled program, without entries.

    Raises:
        VerifyError: ``simple_switch_CLI`` would refuse or misread a line, or n3ic writes no such
            line; the error names the line.
    """
    try:
        commands = program.read(text)
    except P4Error as error:
        raise VerifyError(f"{name}: {error}") from error
    entries: list[DecodedEntry] = []
    added: dict[str, int] = {}  # entries of each table since it was cleared
    for number, (line, command) in enumerate(zip(text.split("\n"), commands, strict=False), 1):
        match command:
            case _ if _WRITTEN.fullmatch(line) is None:
                known = False
            case SetDefault(table, action, data):
                known = True
                entries.append(DecodedEntry(table, action, data))
            case TableClear(table):
                known = table not in added and len(entries) == len(_READINGS)
                added[table] = 0
            case TableAdd(table, action, (int(key),), data, None):
                known = key == added.get(table)
                added[table] = key + 1
                entries.append(DecodedEntry(table, action, data, key))
            case TableAdd(table, action, (Masked(value, mask),), data, 1):
                known = table in added
                added[table] = 1
                entries.append(DecodedEntry(table, action, data, value, mask))
            case _:
                known = False
        if not known:
            raise VerifyError(f"{name}, line {number}: not a command that n3ic writes there")
    if empty := [table for table, count in added.items() if not count]:
        raise VerifyError(f"{name}: table {empty[0]} is cleared and not filled")
    return entries


def from_tutorial(text: str, name: str) -> list[DecodedEntry]:
    """Read the entries of a runtime file of the p4lang tutorials.

    Raises:
        VerifyError: the file is not such a runtime file.
    """
    try:
        return [_tutorial_entry(entry, name) for entry in tutorial_entries(text, name)]
    except (TypeError, KeyError, AttributeError) as error:
        raise VerifyError(f"{name}: not a runtime file: {error!r}") from error


def tutorial_entries(text: str, name: str) -> list[Any]:
    """The entries of a runtime file, as JSON, whose frame must be that of an export.

    Raises:
        VerifyError: the file is not such a runtime file.
    """
    data = _json(text, name)
    try:
        listed: list[Any] = data["table_entries"]
        # Compared as a whole, so that an additional key is refused too.
        frame = {**data, "table_entries": []}
        if frame != {
            "target": "bmv2",
            "p4info": "n3ic.p4info.txt",
            "bmv2_json": "n3ic.json",
            "table_entries": [],
        }:
            raise VerifyError(f"{name}: target or files are not those of this export")
    except (TypeError, KeyError, AttributeError) as error:
        raise VerifyError(f"{name}: not a runtime file: {error!r}") from error
    return listed


def _tutorial_entry(entry: Any, name: str) -> DecodedEntry:
    parameters = entry["action_params"]
    decoded = DecodedEntry(entry["table"], entry["action_name"], tuple(parameters.values()))
    known = set(entry) == {"table", "default_action", "action_name", "action_params"}
    if not known or entry["default_action"] is not True:
        raise VerifyError(f"{name}: {decoded.table} has no default action")
    table = _TABLE.fullmatch(decoded.table)
    if table is None:
        right = list(parameters) in ([], [_SHUNTING.get(decoded.table, ("", "model_id"))[1]])
    else:
        names = "".join(f"{each} " for each in parameters)
        right = bool(_PARAMETERS[table[2].rstrip("0123456789")].fullmatch(names)) and _counted(
            parameters
        )
    if not right:
        raise VerifyError(f"{name}: {decoded.table} has the parameters {list(parameters)}")
    if any(type(value) is not int for value in decoded.data):  # in Python true is an integer
        raise VerifyError(f"{name}: {decoded.table} has a value that is not an integer")
    return decoded


def _counted(names: Iterable[str]) -> bool:
    """Whether the names of each kind of parameter count from 0."""
    counts = Counter[str]()
    for name in names:
        kind = name.rstrip("0123456789")
        if name != f"{kind}{counts[kind]}":
            return False
        counts[kind] += 1
    return True


def from_p4runtime(
    text: str, name: str, source: str, *, update: bool = False
) -> list[DecodedEntry]:
    """Read the entries of P4Runtime requests, which number tables and actions.

    Args:
        text: the requests in the JSON mapping.
        name: name of the file, for errors.
        source: P4 source, whose ``@id`` annotations number its tables and actions.
        update: whether the file changes the entries of tables with a key instead of inserting them.

    Raises:
        VerifyError: the text does not hold such requests, or they do not clear the model's number,
            load the weights and set the number, in this order.
    """
    return _from_requests(_json(text, name), _numbers(source), name, update=update)


def from_p4runtime_texts(
    texts: Sequence[str], names: Sequence[str], source: str
) -> list[DecodedEntry]:
    """Read the entries of P4Runtime requests in protobuf text, one a file.

    Args:
        texts: the requests.
        names: names of the files, for errors.
        source: P4 source, whose ``@id`` annotations number its tables and actions.

    Raises:
        VerifyError: the texts do not hold such requests.
    """
    requests = [_message(text, name) for text, name in zip(texts, names, strict=True)]
    return _from_requests(requests, _numbers(source), names[0])


def _message(text: str, name: str) -> dict[str, Any]:
    """Read protobuf text as n3ic writes it, a field or a brace a line, into the JSON mapping."""
    if not text.startswith(_MESSAGE):
        raise VerifyError(f"{name}: does not say that it is a WriteRequest")
    stack: list[dict[str, Any]] = [{}]
    for number, line in enumerate(text.removeprefix(_MESSAGE).removesuffix("\n").split("\n"), 3):
        field = _FIELD.fullmatch(line)
        if field is None or len(field[1]) != 2 * (len(stack) - 1 - (field[2] == "}")):
            raise VerifyError(f"{name}, line {number}: not a line that n3ic writes there")
        if field[2] == "}":
            stack.pop()
            continue
        key = re.sub("_([a-z])", lambda letter: letter[1].upper(), field[3])
        value = {} if field[4] == " {" else _scalar(key, field[4].removeprefix(": "))
        message = stack[-1]
        if key in ("updates", "params", "match"):
            message.setdefault(key, []).append(value)
        elif key in message:
            raise VerifyError(f"{name}, line {number}: {field[3]} is set twice")
        else:
            message[key] = value
        if key == "actionId":
            message["params"] = []  # JSON has an empty list where an action has no data
        if isinstance(value, dict):
            stack.append(value)
    if len(stack) != 1:
        raise VerifyError(f"{name}: ends within a message")
    return stack[0]


def _scalar(key: str, text: str) -> Any:
    if text.startswith('"'):
        octets = bytes(int(octet, 8) & 255 for octet in text[2:-1].split("\\"))
        return base64.b64encode(octets).decode()
    if text in ("true", "INSERT", "MODIFY"):
        return text == "true" or text
    return text if key in ("deviceId", "low") else int(text)


def from_bfrt(text: str, name: str, program: Switch) -> list[DecodedEntry]:
    """Read the entries of calls for ``bfrt_python``, each as the command that does the same.

    Args:
        text: the calls.
        name: name of the file, for errors.
        program: the compiled program, without entries.

    Raises:
        VerifyError: n3ic writes no such line; the error names the line.
    """
    lines = text.split("\n")
    start = ["# SPDX-License-Identifier: Apache-2.0", "p4 = bfrt.n3ic.pipe"]
    if lines[:2] != start or lines[-2:] != ["bfrt.complete_operations()", ""]:
        raise VerifyError(f"{name}: does not begin with the program and end with its completion")
    commands = [
        _as_command(line, f"{name}, line {i}", program) for i, line in enumerate(lines[2:-2], 3)
    ]
    return from_commands("".join(f"{each}\n" for each in commands), name, program)


def _as_command(line: str, where: str, program: Switch) -> str:
    if cleared := _CLEARED.fullmatch(line):
        return f"table_clear {cleared[1]}"
    call = _CALL.fullmatch(line)
    if call is None:
        raise VerifyError(f"{where}: not a call that n3ic writes there")
    table, verb, action, inside = call.groups()
    arguments = [part for part in inside.split(", ") if part]
    keys = [part for part in arguments if "=" not in part]
    data = [part.partition("=") for part in arguments[len(keys) :]]
    known = program.tables[table].actions.get(action) if table in program.tables else None
    names = [] if known is None else [p.name.rpartition(".")[2] for p in known.parameters]
    if known is None or [given for given, _, _ in data] != names[: len(data)]:
        raise VerifyError(f"{where}: the program has no such table, action or parameters")
    values = [value for _, _, value in data]
    if verb == "set_default" and not keys:
        return " ".join(("table_set_default", table, action, *values))
    if verb == "add" and len(keys) == 1:
        return " ".join(("table_add", table, action, keys[0], "=>", *values))
    if verb == "add" and len(keys) == 3:
        key = f"{keys[0]}&&&{keys[1]}"
        return " ".join(("table_add", table, action, key, "=>", *values, keys[2]))
    raise VerifyError(f"{where}: not a call that n3ic writes there")


def _numbers(source: str) -> dict[tuple[str, int], str]:
    """The names of a program's tables and actions by kind and number."""
    return {(kind, int(number, 16)): name for name, number, kind in _NUMBERED.findall(source)}


def _from_requests(
    requests: Any, names: Mapping[tuple[str, int], str], name: str, *, update: bool = False
) -> list[DecodedEntry]:
    entries: list[DecodedEntry] = []
    try:
        for request in requests:
            frame = {**request, "updates": []}
            if frame != {"deviceId": "0", "electionId": {"low": "1"}, "updates": []}:
                raise VerifyError(f"{name}: device or election is not the one of this export")
            entries.extend(_update(each, names, name, update) for each in request["updates"])
        sizes = [len(request["updates"]) for request in requests]
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise VerifyError(f"{name}: not P4Runtime requests: {error!r}") from error
    # A server may reorder the updates of one request, so each step needs a request of its own.
    if [sizes[:1], sizes[2:]] != [[2], [2]]:
        raise VerifyError(f"{name}: updates that need an order share a request")
    return entries


def _update(
    message: Any, names: Mapping[tuple[str, int], str], name: str, update: bool
) -> DecodedEntry:
    entry = message["entity"]["tableEntry"]
    chosen = entry["action"]["action"]
    keyed = "match" in entry
    ternary = keyed and "ternary" in entry["match"][0]
    value, mask, match = "", "", {}
    if ternary:
        value, mask = (entry["match"][0]["ternary"][part] for part in ("value", "mask"))
        field = {"fieldId": 1, "ternary": {"value": value, "mask": mask}}
        match = {"match": [field], "priority": 1}
    elif keyed:
        value = entry["match"][0]["exact"]["value"]
        match = {"match": [{"fieldId": 1, "exact": {"value": value}}]}
    if message != {
        "type": "INSERT" if keyed and not update else "MODIFY",
        "entity": {
            "tableEntry": {
                "tableId": entry["tableId"],
                "action": {"action": {"actionId": chosen["actionId"], "params": chosen["params"]}},
                **(match if keyed else {"isDefaultAction": True}),
            }
        },
    }:
        raise VerifyError(f"{name}: an update sets neither a default action nor one entry")
    numbers = (("table", entry["tableId"]), ("action", chosen["actionId"]))
    if any(number not in names for number in numbers):
        raise VerifyError(f"{name}: n3ic.p4 has no {' or '.join(f'{k} {i}' for k, i in numbers)}")
    where = f"{name}: {names[numbers[0]]}"
    data = []
    for position, parameter in enumerate(chosen["params"], 1):
        if set(parameter) != {"paramId", "value"} or parameter["paramId"] != position:
            raise VerifyError(f"{where} has parameters out of order")
        data.append(_integer(parameter["value"], where))
    key = _integer(value, where) if keyed else None
    own_mask = _integer(mask, where) if ternary else None
    return DecodedEntry(names[numbers[0]], names[numbers[1]], tuple(data), key, own_mask)


def _integer(text: str, where: str) -> int:
    try:
        octets = base64.b64decode(text)
    except (binascii.Error, ValueError) as error:
        raise VerifyError(f"{where}: a value is not base64") from error
    # The decoder skips foreign characters and ignores unused bits, so the text must be canonical.
    if base64.b64encode(octets).decode() != text:
        raise VerifyError(f"{where}: a value is not canonical base64")
    return int.from_bytes(octets, "big")


@dataclass(frozen=True)
class Loaded:
    """The content of a file of entries.

    Attributes:
        entries: the entries of the model.
        shunt: the smallest margin that is not shunted; None if the file has no threshold.
        signature: suffix of the actions that set the model's number.
        numbers: the model's number, once for each table that sets it.
    """

    entries: tuple[DecodedEntry, ...]
    shunt: int | None
    signature: str
    numbers: tuple[int, ...]


def loaded(artefact: str, all_entries: Sequence[DecodedEntry], shunt_port: int | None) -> Loaded:
    """Separate the entries of a model from those around them.

    Raises:
        VerifyError: an answer could carry the model's number before all entries are loaded, or
            the entries of shunting are not those of the export.
    """
    clear, body, name = all_entries[:2], all_entries[2:-2], all_entries[-2:]
    shunting: dict[str, int] = {}
    entries = []
    for entry in body:
        if entry.table not in _SHUNTING:
            entries.append(entry)
            continue
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
    if sorted((e.table, e.action, e.data) for e in clear) != [
        (table, f"no_{table}", ()) for table in _READINGS
    ]:
        raise VerifyError(f"{artefact}: does not begin by clearing the model's number")
    signature = name[0].action.removeprefix(f"set_{name[0].table}_")
    if sorted((e.table, e.action) for e in name) != [
        (table, f"set_{table}_{signature}") for table in _READINGS
    ] or any(len(e.data) != 1 for e in name):
        raise VerifyError(f"{artefact}: does not end with the model's number")
    numbers = tuple(entry.data[0] for entry in name)
    return Loaded(tuple(entries), shunting.get("shunting"), signature, numbers)


def decode_entries(
    artefact: str,
    entries: Sequence[DecodedEntry],
    model: BinaryModel,
    shunt_port: int | None = None,
) -> Decoded:
    """Decode the network that a file of entries loads into the program.

    Args:
        artefact: name of the file, for errors.
        entries: entries of the file, in order.
        model: the model, which gives the shape, the masked layers, and the model's number.
        shunt_port: port for shunted packets; None if they leave like all others.

    Raises:
        VerifyError: an entry is missing, unknown or duplicated; or an answer could carry the
            model's number before all weights are loaded.
    """
    contents = loaded(artefact, entries, shunt_port)
    signature = "_".join(
        ["lanes", str(model.input.n_bits)]
        + [f"{layer.n_outputs}{'' if layer.mask is None else 'm'}" for layer in model.layers]
    )
    signature += "" if contents.shunt is None else "s"
    if contents.signature != signature:
        raise VerifyError(f"{artefact}: does not end with the model's number for {signature}")
    tables: dict[str, tuple[int, ...]] = {}
    for entry in contents.entries:
        place = _TABLE.fullmatch(entry.table)
        does = "" if place is None else place[2].replace("weights", "xnor")
        if place is None or entry.action not in (f"{place[1]}_{does}", f"{place[1]}_set_{does}"):
            raise VerifyError(f"{artefact}: no such entry: {entry.table} with {entry.action}")
        if entry.table in tables:
            raise VerifyError(f"{artefact}: {entry.table} is set twice")
        tables[entry.table] = entry.data
    values: dict[Place, int] = {}
    for index in range(len(model.layers)):
        values |= _layer(artefact, index, model, tables)
    if tables:
        raise VerifyError(f"{artefact}: the network has no {', '.join(tables)}")
    digest = digest_of_numbers(contents.numbers, model)
    layers = decoded_layers(artefact, values, model)
    return Decoded(artefact, layers, digest=digest, shunt=contents.shunt)


def popcount_field(inputs: int, outputs: int) -> tuple[int, int]:
    """Bits of the field in which a layer's neurons count, and the number of popcount stages."""
    lane, lanes = _lanes(inputs, outputs)
    return lane * lanes, lane.bit_length() - 2


def _lanes(inputs: int, outputs: int) -> tuple[int, int]:
    """Bits in which a neuron counts, and the neurons that share a field."""
    powers = [1 << i for i in range(1, 64)]
    enough = next(power for power in powers if power >= inputs)
    fitting = max((power for power in powers if power * outputs <= _FIELD_BITS), default=0)
    lane = min(enough, _MOST_LANE, max(fitting, _LEAST_LANE))
    fields = math.ceil(outputs / (_FIELD_BITS // lane))
    return lane, math.ceil(outputs / fields)


def _layer(
    artefact: str, index: int, model: BinaryModel, tables: dict[str, tuple[int, ...]]
) -> dict[Place, int]:
    """Take a layer's values from what the tables hold.

    Raises:
        VerifyError: a table is missing, has another number of values, or counts ones where the
            network has no weight.
    """
    inputs, neurons = model.shape[index : index + 2]
    lane, lanes = _lanes(inputs, neurons)
    fields = math.ceil(neurons / lanes)

    def take(table: str, count: int) -> tuple[int, ...]:
        data = tables.pop(table, None)
        if data is None:
            raise VerifyError(f"{artefact}: {table} is missing")
        if len(data) != count:
            raise VerifyError(f"{artefact}: {table} has {len(data)} values, not {count}")
        return data

    offsets = take(f"l{index}_{'thresholds' if index < len(model.hidden) else 'biases'}", neurons)
    values: dict[Place, int] = {("limit", index, j): value for j, value in enumerate(offsets)}
    kinds = ("weights",) if model.layers[index].mask is None else ("weights", "mask")
    for part in range(math.ceil(inputs / lane)):
        table = f"l{index}_weights{part}"
        data = take(table, fields * len(kinds))
        for number, value in enumerate(data):
            kind, field = kinds[number // fields], number % fields
            if not 0 <= value < 1 << (lane * lanes):
                raise VerifyError(f"{artefact}: {table} has a value wider than {lane * lanes} bits")
            bits = f"{value:0{lane * lanes}b}"[::-1]
            for at in range(lanes):
                own, neuron = bits[at * lane : (at + 1) * lane], field * lanes + at
                used = min(lane, inputs - part * lane) if neuron < neurons else 0
                # 1 as a weight and 0 as a mask let a bit of no input count nothing.
                if own[used:].strip("1" if kind == "weights" else "0"):
                    raise VerifyError(f"{artefact}: {table} counts a bit that is no input")
                if used:
                    place = kind, index, neuron
                    values[place] = values.get(place, 0) | int(own[:used][::-1], 2) << part * lane
    return values


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VerifyError(f"{name}: not JSON: {error}") from error
