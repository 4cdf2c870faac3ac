# SPDX-License-Identifier: Apache-2.0
"""Sends frames, each behind its length in two bytes, from standard input to an interface."""

import socket
import struct
import sys


def main() -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as to:
        to.bind((sys.argv[1], 0))
        while head := sys.stdin.buffer.read(2):
            to.send(sys.stdin.buffer.read(*struct.unpack(">H", head)))


if __name__ == "__main__":
    main()
