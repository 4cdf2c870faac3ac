# SPDX-License-Identifier: Apache-2.0

# ruff: noqa: T201 - its output is what the test reads
"""Ends of the virtual card, run inside network namespaces by test_tap_nic.py.

``send DEVICE FILE``: frames of the file, one in hexadecimal a line, leave at the device.
``receive DEVICE ETHERTYPE COUNT``: prints frames of that type as they come.
``echo PORT`` and ``ask ADDRESS PORT``: a TCP connection through the card.
"""

import socket
import sys
from pathlib import Path

SECONDS = 60


def main(command: str, *arguments: str) -> None:
    if command == "send":
        device, file = arguments
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as port:
            port.bind((device, 0))
            for line in Path(file).read_text().split():
                port.send(bytes.fromhex(line))
    elif command == "receive":
        device, kind, count = arguments[0], int(arguments[1], 0), int(arguments[2])
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind)) as port:
            port.bind((device, kind))
            port.settimeout(SECONDS)
            print("ready", flush=True)
            for _ in range(count):
                print(port.recv(65535).hex(), flush=True)
    elif command == "echo":
        with socket.create_server(("0.0.0.0", int(arguments[0]))) as server:
            server.settimeout(SECONDS)
            print("ready", flush=True)
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(data)
    elif command == "ask":
        text = bytes(range(256)) * 200
        with socket.create_connection((arguments[0], int(arguments[1])), SECONDS) as client:
            client.settimeout(SECONDS)
            client.sendall(text)
            client.shutdown(socket.SHUT_WR)
            got = b""
            while data := client.recv(65536):
                got += data
        print("equal" if got == text else "different")


main(*sys.argv[1:])
