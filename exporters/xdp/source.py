# SPDX-License-Identifier: Apache-2.0
"""Assembles the C of the XDP programs, from fixed files and those of a meter and a network."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

from n3ic.exporters.xdp.clang import compile_bpf
from n3ic.exporters.xdp.kernel_style import kernel_style
from n3ic.exporters.xdp.network.source import network_source
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.meter.source import FOLDER as METER_FOLDER
from n3ic.meter.source import meter_source
from n3ic.model.meter_spec import MeterSpec
from n3ic.targets.packets import PacketLayout
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent / "c"
METER, ANSWER = "meter.c", "answer.c"
PACKET, KEY = (METER_FOLDER / name for name in ("packet.h", "key.h"))
Table = Literal["lru", "buckets"]
TABLES: tuple[Table, ...] = get_args(Table)
# Bits of a flow key's parts in the two words that windows compare.
_ADDRESSES = {"source": 0xFFFFFFFF, "destination": 0xFFFFFFFF << 32}
_ENDS = {
    "source_port": 0xFFFF,
    "destination_port": 0xFFFF << 16,
    "protocol": 0xFF << 32,
    "family": 0xFF << 40,
}
OPTIONS = ("-ffreestanding",)  # because the C library's headers do not support BPF


def table_of(options: Mapping[str, Any]) -> Table:
    """Return the flow table that an export's options choose."""
    return "lru" if options["table"] == "lru" else "buckets"


def meter_program(
    spec: MeterSpec, structure: Structure, *, per_cpu: bool, table: Table = "lru"
) -> dict[str, str]:
    """Return the files of the metering program by name; clang compiles :data:`METER`.

    Args:
        spec: meter to compile in.
        structure: structure of networks to compile in.
        per_cpu: whether each CPU has its own windows over the flows that it decides.
        table: the flow table: the kernel's LRU hash, or an array of buckets.
    """
    meter = meter_source(spec)
    files = {
        **_plain(METER, "maps.h", "state.h", "dispatch.h", "verdicts.h", "windows.h"),
        **_plain("hook_tc.h", "hook_xdp.h"),
        "table.h": (FOLDER / f"table_{table}.h").read_text(encoding="utf-8"),
        **{name: text for name, text in meter.items() if name not in ("meter.h", "meter.c")},
        **(_plain("source_table.h") if spec.sources.features else {}),
        **network_source(structure),
        "model.h": render(FOLDER, "model.h.j2", _values(spec, structure, per_cpu)),
    }
    return kernel_style(files)


def answer_program(structure: Structure, packets: PacketLayout) -> dict[str, str]:
    """Return the files of the answering program by name; clang compiles :data:`ANSWER`."""
    values = {
        "ethertype": packets.ethertype,
        "result_bytes": packets.result_bytes,
        "input_bytes": packets.input_bytes,
        "input_bits": packets.input_bits,
    }
    files = {
        **_plain("dispatch.h"),
        **{path.name: path.read_text(encoding="utf-8") for path in (PACKET, KEY)},
        **network_source(structure),
        ANSWER: render(FOLDER, "answer.c.j2", values),
    }
    return kernel_style(files)


def test_program(name: str) -> dict[str, str]:
    """Return the files of a program that makes packets for test runs; clang compiles ``name``."""
    return _plain(name, "test_frames.h") | {PACKET.name: PACKET.read_text(encoding="utf-8")}


def compile_program(files: dict[str, str], program: str) -> bytes:
    """Compile a program to an object file; see :func:`~n3ic.exporters.xdp.clang.compile_bpf`."""
    return compile_bpf(files, program, OPTIONS)


def _plain(*names: str) -> dict[str, str]:
    return {name: (FOLDER / name).read_text(encoding="utf-8") for name in names}


def _values(spec: MeterSpec, structure: Structure, per_cpu: bool) -> dict[str, Any]:
    rows = [selector.rows for selector in structure.selectors]
    names = spec.feature_names
    most = max((w.flows for w in spec.windows), default=0)
    return {
        "inputs": [names.index(name) for name in structure.features],
        "selectors": list(zip(rows, accumulate([0, *rows]), strict=False)),
        "rows": sum(rows),
        "most": most,
        "groups": 1 << most.bit_length(),
        "heads": 2 << most.bit_length(),
        "windows": [
            {
                "flows": w.flows,
                "addresses": _mask(_ADDRESSES, w.same),
                "ends": _mask(_ENDS, (*w.same, *("family" for p in w.same if p in _ADDRESSES))),
            }
            for w in spec.windows
        ],
        "numbered": any(part in _ADDRESSES for w in spec.windows for part in w.same),
        "per_cpu": per_cpu,
    }


def _mask(places: dict[str, int], parts: tuple[str, ...]) -> str:
    """Return C for the bits of those parts of a key that have a place in the word."""
    return f"{sum(places[part] for part in set(parts) & places.keys()):#x}ull"
