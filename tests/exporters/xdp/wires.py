# SPDX-License-Identifier: Apache-2.0
"""Links for the tests that send frames, in namespaces of their own."""

import socket
import subprocess


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
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    found.bind((interface, 0))
    found.settimeout(5)
    return found
