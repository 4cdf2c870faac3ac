# SPDX-License-Identifier: Apache-2.0
"""Links for the tests that send frames, in namespaces of their own."""

import socket
import struct
import subprocess
import sys
from contextlib import contextmanager


def link(one: str, other: str, mtu: int = 3000) -> None:
    """A veth pair that nothing but the test sends on."""
    size = ("mtu", str(mtu))
    ip("add", one, *size, "type", "veth", "peer", "name", other, *size)
    for name in (one, other):
        command = ["sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1"]
        subprocess.run(command, check=True)
        ip("set", name, "arp", "off", "up")


def ip(*words):
    subprocess.run(["ip", "link", *words], check=True)


def wire(interface):
    """A socket that sends and takes whole frames."""
    raw_socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    raw_socket.bind((interface, 0))
    raw_socket.settimeout(60)
    return raw_socket


SERVER = """
import socket, sys
taken = socket.create_server(("0.0.0.0", 7))
print("ready", flush=True)
for _ in sys.stdin:
    one, _ = taken.accept()
    while one.recv(1 << 16):
        pass
    one.sendall(bytes(50_000))
    one.close()
    print("served", flush=True)
"""


@contextmanager
def host(name, addresses):
    """A neighbour in a namespace of its own, at the end of a link from here.

    Args:
        name: this end of the link.
        addresses: this end's and the neighbour's.

    Yields:
        A function that sends bytes to the neighbour's TCP server, and reads its answer.
    """
    ip("add", name, "type", "veth", "peer", "name", "n3z")
    server = subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout.readline() == "ready\n"
        ip("set", "n3z", "netns", str(server.pid))
        there = ("nsenter", "-t", str(server.pid), "-n")
        for place, end, address in (((), name, addresses[0]), (there, "n3z", addresses[1])):
            quiet = "net.ipv6.conf.all.disable_ipv6=1"
            subprocess.run([*place, "sysctl", "-qw", quiet], check=True)
            for words in (
                ("addr", "add", f"{address}/24", "dev", end),
                ("link", "set", end, "up"),
            ):
                subprocess.run([*place, "ip", *words], check=True)

        def exchange(data):
            server.stdin.write("next\n")
            server.stdin.flush()
            with socket.create_connection((addresses[1], 7), 60) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answer = b""
                while part := connection.recv(1 << 16):
                    answer += part
            assert server.stdout.readline() == "served\n"
            return answer

        yield exchange
    finally:
        server.stdin.close()
        server.stdout.close()
        server.kill()
        server.wait()


def ping(address):
    """An echo that the neighbour answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as asking:
        asking.settimeout(60)
        echo = bytes([8, 0, 0xF7, 0xFF]) + bytes(4) + bytes(24)
        asking.sendto(echo, (address, 0))
        while asking.recv(2048)[20:21] != b"\0":
            pass


class Tap:
    """A capture of an interface: its frames as on the wire, in both directions."""

    def __init__(self, interface):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        self.socket.setsockopt(263, 8, 1)  # SOL_PACKET, PACKET_AUXDATA
        self.socket.bind((interface, 3))
        self.socket.setblocking(False)

    def frames(self):
        try:
            while True:
                data, ancillary, _, _ = self.socket.recvmsg(1 << 17, 256)
                status, _, _, _, _, tag, kind = struct.unpack_from("=IIIHHHH", ancillary[0][2])
                if status & (1 << 4):  # TP_STATUS_VLAN_VALID
                    data = data[:12] + struct.pack(">HH", kind, tag) + data[12:]
                yield data
        except BlockingIOError:
            return
