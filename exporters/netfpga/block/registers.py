# SPDX-License-Identifier: Apache-2.0
"""The registers of an export: one table, from which Verilog, SystemRDL, C and Markdown are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from n3ic.exporters.netfpga.core import CorePorts
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
MAP_VERSION = 1 << 16 | 1  # major in bits 31:16, minor in bits 15:0
ADDRESS_BITS = 12  # 4 KiB, the smallest range that Vivado assigns
_ID = 0x4E334943  # "N3IC"
_FIRST_COUNTER = 0x40
_FRONT_COUNTERS_1_0 = 12  # of the front end in version 1.0 of the map
_FILES = ("n3ic.rdl", "n3ic_registers.h", "registers.md")


@dataclass(frozen=True)
class BitField:
    """Bits of a register.

    Attributes:
        name: its name, in lower case.
        width: number of bits, from bit 0 or the end of the field before.
        text: what it says.
    """

    name: str
    width: int
    text: str


@dataclass(frozen=True)
class BusRegister:
    """A register of 32 bits.

    Attributes:
        name: its name, in lower case.
        offset: its address in bytes.
        access: ``ro``, ``rw`` or ``wo``.
        text: what it holds or does.
        value: Verilog of what a read gives; of a counter, of the event that it counts.
        reset: the value after a reset; None if it depends on the state of the core.
        counter: whether it counts clocks in which ``value`` is 1.
        fields: bits with a meaning of their own; empty for one number.
    """

    name: str
    offset: int
    access: Literal["ro", "rw", "wo"]
    text: str
    value: str = "32'd0"
    reset: int | None = 0
    counter: bool = False
    fields: tuple[BitField, ...] = ()

    @property
    def bits(self) -> Iterator[tuple[int, int, BitField]]:
        """Highest and lowest bit of each field, from the lowest up; one field if none is named."""
        low = 0
        for field in self.fields or (BitField("value", 32, self.text),):
            yield low + field.width - 1, low, field
            low += field.width


def registers(core: CorePorts, digest: str, *, front: bool) -> tuple[BusRegister, ...]:
    """List the registers of an export, by ascending address.

    Args:
        core: the core's description.
        digest: hexadecimal digest of the exported model, 64 digits.
        front: whether the core is behind a network stack, not in a packet path.
    """
    ready = BitField("busy", 1, "1: an update must wait, see the README")
    table = [
        _constant("id", 0x00, "N3IC in ASCII", _ID),
        _constant("version", 0x04, "Version of this map: major (31:16), minor (15:0)", MAP_VERSION),
    ]
    if core.write_port:
        table += [
            BusRegister(
                "status", 0x08, "ro", "State of updates", "{31'd0, wr_busy}", None, False, (ready,)
            ),
        ]
    if not front:
        text = "Id of the model that computed the latest result: the start of its digest"
        table += [BusRegister("model", 0x0C, "ro", text, "model")]
    if core.write_port:
        table += [
            BusRegister(
                "update_address",
                0x10,
                "rw",
                "Address of the next word of an update",
                "update_address",
            ),
            BusRegister("update_data", 0x14, "wo", "Writes a word of an update to that address"),
            BusRegister("commit", 0x18, "wo", "1: later inferences use the model that was written"),
        ]
    for i in range(8):
        text, part = f"Bytes {4 * i} to {4 * i + 3} of the exported model's digest", digest[8 * i :]
        value = f"DIGEST[{255 - 32 * i} -: 32]"
        table.append(BusRegister(f"digest{i}", 0x20 + 4 * i, "ro", text, value, int(part[:8], 16)))
    return (*table, *_counters(core, front=front))


def _constant(name: str, offset: int, text: str, value: int) -> BusRegister:
    return BusRegister(name, offset, "ro", text, f"32'h{value:08x}", value)


def _front_counters() -> tuple[str, ...]:
    """Names of the front end's counters; an export without one does not load it."""
    from n3ic.exporters.netfpga.frontend.parameters import COUNTERS

    return COUNTERS


def _counters(core: CorePorts, *, front: bool) -> list[BusRegister]:
    """Counters of 32 bits, which begin again at 0 after their largest value."""
    events: list[tuple[str, str, str, bool]] = []
    later: list[tuple[str, str, str, bool]] = []
    if front:
        own = [
            (f"count_{name}", f"The front end's counter {name}", f"counters[{32 * i} +: 32]", False)
            for i, name in enumerate(_front_counters())
        ]
        # What version 1.1 added has the highest addresses.
        events, later = own[:_FRONT_COUNTERS_1_0], own[_FRONT_COUNTERS_1_0:]
    else:
        events = [
            ("count_packets_in", "Packets that came", "packet_in", True),
            ("count_packets_out", "Packets that left", "packet_out", True),
            ("count_results", "Inferences", "result_valid", True),
        ]
        if core.shunts:
            shunted = "result_valid && result_shunt"
            events.append(("count_shunted", "Inferences left to the host", shunted, True))
    if core.write_port:
        events += [
            ("count_words", "Words of updates that were passed on", "wr_en", True),
            ("count_swaps", "Commits that took effect", "swapped", True),
            ("count_refused", "Writes answered by an error", "refused", True),
        ]
    return [
        BusRegister(name, _FIRST_COUNTER + 4 * i, "ro", text, value, 0, counted)
        for i, (name, text, value, counted) in enumerate([*events, *later])
    ]


def write(
    core: CorePorts,
    digest: str,
    shape: str,
    ports: Sequence[tuple[str, int, str]],
    out: Path,
    *,
    front: bool,
) -> tuple[BusRegister, ...]:
    """Write the slave, the top that has it, and the map of its registers.

    Args:
        core: the core's description.
        digest: hexadecimal digest of the exported model.
        shape: the model's shape, for comments.
        ports: direction, width and name of the ports that the top passes on.
        out: the export directory.
        front: whether the core is behind a network stack.

    Returns:
        The registers.
    """
    table = registers(core, digest, front=front)
    values = {
        "registers": table,
        "digest": digest,
        "address_w": ADDRESS_BITS,
        "core": core,
        "front": front,
        "counters": len(_front_counters()) if front else 0,
        "shape": shape,
        "ports": ports,
        "inner": "n3ic_front_top" if front else "n3ic_top",
        "streams": sorted({name.rpartition("_")[0] for _, _, name in ports if "tdata" in name}),
    }
    for name in ("n3ic_axil.v", "n3ic_axil_top.v"):
        (out / "rtl" / name).write_text(render(FOLDER, f"{name}.j2", values), "utf-8")
    (out / "registers").mkdir(exist_ok=True)
    for name in _FILES:
        (out / "registers" / name).write_text(render(FOLDER, f"{name}.j2", values), "utf-8")
    return table
