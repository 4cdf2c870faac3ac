# SPDX-License-Identifier: Apache-2.0
"""Stands in for simple_switch: n3ic's interpreter between real interfaces, fed over TCP.

N3IC_SPOIL spoils it for the tests: ``deaf`` drops packets, ``flip`` flips a bit of the result
header, ``tail`` one of the payload's neighbour, ``crash`` ends at once, ``bare`` knows no
``--notifications-addr``, as a switch that is built without nanomsg, ``ignore`` takes changes of
entries and defaults and makes none, ``forget`` gives entries that are changed no data but zeros.
Port 0 is a free one, which it names.
"""

# ruff: noqa: T201 - the tools that these stand in for print, too

import json
import os
import selectors
import socket
import sys
from fractions import Fraction
from pathlib import Path

from n3ic.exporters.p4.interpreter import P4Error, Switch
from n3ic.exporters.p4.interpreter.tables import Masked

mode = os.environ.get("N3IC_SPOIL", "")
if "--version" in sys.argv:
    print("0.0.0-stand-in")
    sys.exit(0)
if "--help" in sys.argv:
    print("Usage: SWITCH_NAME [options] <path to JSON config file>")
    print("  --thrift-port arg", "" if mode == "bare" else "--notifications-addr arg", sep="\n  ")
    sys.exit(0)
if ("--notifications-addr" in sys.argv) == (mode == "bare"):
    print("unrecognised option, or the path that all switches of a machine share")
    sys.exit(1)
if mode == "crash":
    print("cannot open the interface", flush=True)
    sys.exit(3)


def config():
    """What the program's JSON tells of its tables, actions and meters."""
    tables = {
        t.name: {
            "keys": [
                (f"key{i}", match, k.sized)
                for i, (k, match) in enumerate(zip(t.keys, t.matches, strict=True))
            ],
            "actions": list(t.actions),
        }
        for t in switch.tables.values()
    }
    actions = {
        a.name: [leaf.type.width for leaf in a.parameters]
        for t in switch.tables.values()
        for a in t.actions.values()
    }
    return {"tables": tables, "actions": actions, "meters": list(switch.meters)}


def answered(request):
    """The answer to a request of the stand-in for simple_switch_CLI."""
    table = switch.tables.get(request.get("table"))
    meter = switch.meters.get(request.get("meter"))
    data = request.get("data")
    match request["do"]:
        case "config":
            return config()
        case "default" if mode != "ignore":
            table.set_default(request["action"], data)
        case "add":
            made = {"exact": int, "range": tuple, "ternary": lambda pair: Masked(*pair)}
            kinds = zip(table.matches, request["keys"], strict=True)
            keys = tuple(made[match](k) for match, k in kinds)
            table.add(request["action"], keys, data, request["priority"])
        case "clear" if mode != "ignore":
            table.clear()
        case "modify" if mode == "forget":
            table.modify(request["action"], request["handle"], [0] * len(data))
        case "modify" if mode != "ignore":
            table.modify(request["action"], request["handle"], data)
        case "count":
            return {"count": len(table.entries)}
        case "get" if request["handle"] >= len(table.entries):
            return {"of": "table", "error": "INVALID_HANDLE"}
        case "get":
            entry = table.entries[request["handle"]]
            shown = {"action": entry.does.action, "data": entry.does.data}
            keys = [(k.value, k.mask) if isinstance(k, Masked) else k for k in entry.keys]
            return {"keys": keys, "priority": entry.priority, **shown}
        case "get_default":
            return {"action": table.default.action, "data": table.default.data}
        case "set_rates":
            meter.set_rates(request["index"], *((Fraction(r), b) for r, b in request["rates"]))
        case "get_rates":
            return {"rates": [(float(r), b) for r, b in meter.rates(request["index"])]}
        case "packet":
            outcome = switch.process(bytes.fromhex(request["bytes"]), 0, request["now"])
            return {"bytes": outcome.packet.hex()}
    return {}


def serve(connection):
    with connection, connection.makefile("rw") as stream:
        for line in stream:
            try:
                answer = answered(json.loads(line))
            except P4Error as error:
                answer = {"of": "table", "error": str(error)}
            stream.write(json.dumps(answer) + "\n")
            stream.flush()


arguments = sys.argv[1:]
interfaces = dict(arguments[i + 1].split("@") for i, word in enumerate(arguments) if word == "-i")
switch = Switch(Path(arguments[-1]).read_text())
waiting = selectors.DefaultSelector()
server = socket.create_server(("127.0.0.1", int(arguments[arguments.index("--thrift-port") + 1])))
print("port", server.getsockname()[1], flush=True)
waiting.register(server, selectors.EVENT_READ, None)
ports = {}
for number, name in interfaces.items():
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    raw.bind((name, 3))
    ports[int(number)] = raw
    waiting.register(raw, selectors.EVENT_READ, int(number))
while True:
    for key, _ in waiting.select():
        if key.data is None:
            serve(server.accept()[0])
            continue
        packet, address = ports[key.data].recvfrom(65535)
        if address[2] == socket.PACKET_OUTGOING or mode == "deaf":
            continue
        outcome = switch.process(packet, key.data)
        answer = bytearray(outcome.packet)
        if mode == "flip":
            answer[21] ^= 1  # the low byte of class_id
        if mode == "tail":
            answer[15] ^= 1  # the low byte of next_type
        ports[outcome.port].send(bytes(answer))
