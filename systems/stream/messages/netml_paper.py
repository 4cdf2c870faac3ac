# SPDX-License-Identifier: Apache-2.0
"""The figures that the paper states in words and tables.

Source: A. Dhakal and K. K. Ramakrishnan, "NetML: An NFV Platform with Efficient Support for Machine
Learning Applications", figures 5 to 12 and tables I to III. Curves without stated numbers are left
out.
"""

from __future__ import annotations

from n3ic.util.display import TextTable

PAPER_MACHINE = "Xeon E5-2698 v4 2.2 GHz, Tesla P100, DPDK, 10 Gb/s"
_HEAD = ("figure of the NetML paper", "A#1 copy", "A#2 gather", "NetML pull", "other")


def paper_table(what: str) -> TextTable:
    """The paper's figures of ``transfer``, ``models``, ``memory`` or ``training``, as a table."""
    return TextTable(f"the text: {PAPER_MACHINE}", _HEAD, _ROWS[what])


_ROWS: dict[str, tuple[tuple[str, ...], ...]] = {
    "transfer": (
        ("fig. 5 to 8: 500 KB in 1 KB packets, first packet to on device", "> 4 ms", "> 1.37 ms",
         "0.63 ms", ""),
        ("fig. 9: the CPU's part", "8 µs a packet", "", "25 µs a launch", ""),
    ),
    "models": (
        ("table I: VGG-11", "8.6 ms", "", "", "CPU 636 ms, GPU alone 3.95 ms"),
        ("table I: Tiny-YOLO", "11.3 ms", "", "", "CPU 1,067 ms, GPU alone 4.68 ms"),
        ("fig. 10: VGG-11, 256 to 768 bytes", "12.3 ms, less in larger packets", "5.5 ms",
         "4.3 ms", ""),
        ("fig. 11: Tiny-YOLO, largest packets", "8.1 ms", "5.9 ms", "4.7 ms", ""),
        ("fig. 12: transfer's share of a VGG-11 image", "over half", "", "", ""),
    ),
    "memory": (
        ("table II: forwarding, 256 bytes", "", "", "", "registered huge pages 10 Gb/s, "
         "cudaHostAlloc 3.1 Gb/s"),
        ("table II: forwarding, 512 bytes", "", "", "", "registered huge pages 10 Gb/s, "
         "cudaHostAlloc 5.1 Gb/s"),
    ),
    "training": (
        ("table III: files/s, batch 50", "", "22,727", "29,585", "accuracy 95 %"),
        ("table III: files/s, batch 80", "", "30,005", "40,113", "accuracy 93 %"),
        ("table III: files/s, batch 100", "", "41,518", "56,497", "accuracy 92 %"),
    ),
}  # fmt: skip
