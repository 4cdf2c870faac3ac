# SPDX-License-Identifier: Apache-2.0
"""Wireshark reads the messages by the exported dissector."""

from __future__ import annotations

import shutil
import struct
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.netfpga.frontend import messages as m
from n3ic.exporters.netfpga.frontend import packets as p
from n3ic.exporters.netfpga.frontend.parameters import DISSECTOR, FOLDER

SCRIPT = FOLDER / DISSECTOR
HOST = p.SocketAddress(b"\2\0\0\0\0\1", bytes((10, 23, 23, 1)), 40_000)
CARD = p.SocketAddress(b"\2\0\0\0\0\2", bytes((10, 23, 23, 2)), m.PORT)
RESULT = struct.pack(">HHIii", m.SHUNTED, 1, 3, -7, 12)


def capture(path: Path, frames: list[bytes]) -> Path:
    """Frames as a capture file, a second apart."""
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for i, frame in enumerate(frames):
        data += struct.pack("<IIII", i, 0, len(frame), len(frame)) + frame
    path.write_bytes(data)
    return path


def fields(path: Path, *names: str) -> list[list[str]]:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("needs tshark: apt install tshark")
    command = [tshark, "-X", f"lua_script:{SCRIPT}", "-r", str(path), "-T", "fields"]
    command += [part for name in names for part in ("-e", name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert "Lua" not in done.stderr, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_the_script_is_lua() -> None:
    luac = shutil.which("luac") or shutil.which("luac5.4")
    if luac is None:
        pytest.skip("needs luac: apt install lua5.4")
    subprocess.run([luac, "-p", str(SCRIPT)], check=True, timeout=600)


def test_datagrams(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.uint8).reshape(2, 6)
    asked = m.request(77, 0xABCD, rows).to_bytes()
    results = m.Message(m.RESULTS, 77, 0xABCD, 2, len(RESULT), RESULT * 2).to_bytes()
    fault = m.Message(m.FAULT, 78, 0xABCD, 0, 6, struct.pack(">HH", 6, 72)).to_bytes()
    path = capture(
        tmp_path / "udp.pcap",
        [p.udp(HOST, CARD, asked), p.udp(CARD, HOST, results), p.udp(CARD, HOST, fault)],
    )
    names = ("n3ic.kind", "n3ic.id", "n3ic.rows", "n3ic.row", "n3ic.verdict", "n3ic.score")
    packets = fields(path, *names, "n3ic.fault", "n3ic.most")
    assert packets[0] == ["0", "77", "2", "000102030405,060708090a0b", "", "", "", ""]
    assert packets[1][:3] == ["1", "77", "2"]
    assert packets[1][4:6] == ["65535,65535", "-7,12,-7,12"]
    assert (packets[2][0], packets[2][6:]) == ("2", ["6", "72"])


def test_messages_across_segments(tmp_path: Path) -> None:
    results = m.Message(m.RESULTS, 5, 1, 40, len(RESULT), RESULT * 40).to_bytes()
    stream = results + results.replace(b"\0\0\0\5", b"\0\0\0\6", 1)
    cuts = [0, 100, len(results) + 7, len(stream)]
    frames = [p.tcp(CARD, HOST, p.ACK, 1 + a, 1, stream[a:b]) for a, b in pairwise(cuts)]
    packets = fields(capture(tmp_path / "tcp.pcap", frames), "n3ic.id", "n3ic.verdict")
    ids = [i for row in packets for i in row[0].split(",") if i]
    assert ids == ["5", "6"]
    assert sum(len(row[1].split(",")) for row in packets if row[0]) == 80
