"""Stands in for simple_switch: n3ic's interpreter between real interfaces, fed over TCP.

N3IC_SPOIL spoils it for the tests: ``deaf`` drops packets, ``flip`` flips a bit of the result
header, ``tail`` one of the payload's neighbour, ``crash`` ends at once, ``bare`` knows no
``--notifications-addr``, as a switch that is built without nanomsg.
"""

# ruff: noqa: T201 - the tools that these stand in for print, too

import os
import selectors
import socket
import sys
from pathlib import Path

from n3ic.exporters.p4.interpreter import P4Error, Switch

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
arguments = sys.argv[1:]
interfaces = dict(arguments[i + 1].split("@") for i, word in enumerate(arguments) if word == "-i")
switch = Switch(Path(arguments[-1]).read_text())
waiting = selectors.DefaultSelector()
server = socket.create_server(("127.0.0.1", int(arguments[arguments.index("--thrift-port") + 1])))
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
            connection, _ = server.accept()
            with connection, connection.makefile("rw") as stream:
                for line in stream:
                    try:
                        switch.load(line)
                        stream.write(f"Setting default action of {line.split()[1]}\n")
                    except P4Error as error:
                        stream.write(f"Error: {error}\n")
                    stream.flush()
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
