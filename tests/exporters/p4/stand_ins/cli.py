"""Stands in for simple_switch_CLI: sends the commands of its standard input over TCP."""

# ruff: noqa: T201 - the tools that these stand in for print, too

import socket
import sys

port = int(sys.argv[sys.argv.index("--thrift-port") + 1])
try:
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
except OSError:
    print(f"Could not connect to thrift client on port {port}")
    sys.exit(1)
with connection, connection.makefile("rw") as stream:
    for line in sys.stdin:
        if line.strip():
            stream.write(line)
            stream.flush()
            print(stream.readline(), end="")
