# SPDX-License-Identifier: Apache-2.0
"""Reads weights, masks, thresholds, biases and the shunting threshold back from the artefacts.

The artefacts are the memory files and ``update.hex``. This module shares no code with the writer:
the position of a neuron follows from the parameters of the blocks in ``n3ic_executor.v``, as in
the hardware.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.targets.decoding import Decoded, DecodedLayer

Bits = NDArray[np.bool_]
_BLOCK = re.compile(r"n3ic_(rows|hidden|output) #\((.*?)\) \w+?(\d+) \(", re.DOTALL)
_PARAMETER = re.compile(r'\.([A-Z_]+)\((\d+|"\w+\.mem")\)')
_FIELD = re.compile(r"\] wr_(layer|kind|row|word) = wr_addr\[(\d+):(\d+)\];")
_SHUNTING = re.compile(r'\$readmemh\("(\w+)\.mem", thresholds\);')
_ROW = re.compile(r"[0-9a-f]+")
_WRITE = re.compile(r"([0-9a-f]+) ([0-9a-f]{8})")


@dataclass(frozen=True)
class _Memory:
    """One bank of one memory of the executor.

    Attributes:
        file: name of its file, without extension.
        layer: index of its layer.
        kind: 0 weights, 1 masks, 2 thresholds or biases, 3 the shunting threshold.
        words: 32-bit words per row.
        used: number of rows that a bank uses.
        depth: number of rows of a bank.
    """

    file: str
    layer: int
    kind: int
    words: int
    used: int
    depth: int


_Read = Callable[[_Memory], NDArray[np.uint32]]


def decode(directory: Path) -> tuple[Decoded, ...]:
    """Decode the artefacts of a sequential core.

    The artefacts are each bank of both forms of memory files, and ``update.hex``.

    Raises:
        VerifyError: a file is missing or malformed, or holds a value where the network has none.
    """
    blocks = _blocks(_text(directory, "rtl/n3ic_executor.v"))
    memories = [m for i, block in enumerate(blocks) for m in _memories(i, block)]
    named = _SHUNTING.findall(_text(directory, "rtl/n3ic_core.v"))
    shunting = [_Memory(name, 0, 3, 1, 1, 1) for name in named]
    readers: list[tuple[str, _Read]] = [
        (f"mem/*.{ending}, bank {bank}", _bank(directory, ending, bank))
        for ending in ("mem", "coe")
        for bank in (0, 1)
    ]
    readers.append(("mem/update.hex", _update(directory, [*memories, *shunting])))
    return tuple(
        Decoded(
            name,
            tuple(_layer(name, i, block, read) for i, block in enumerate(blocks)),
            shunt=next((int(read(memory)[0, 0]) for memory in shunting), None),
        )
        for name, read in readers
    )


# --- the executor's parameters -----------------------------------------------------------------

_Parameters = dict[str, int | str]


def _blocks(verilog: str) -> list[_Parameters]:
    """Read each layer's parameters: ``n3ic_rows`` and ``n3ic_hidden`` or ``n3ic_output``."""
    layers: dict[int, _Parameters] = {}
    for kind, text, index in _BLOCK.findall(verilog):
        parameters = {k: int(v) if v.isdigit() else v[1:-5] for k, v in _PARAMETER.findall(text)}
        if kind == "output":
            parameters["M"] = parameters.pop("CLASSES")
        layers.setdefault(int(index), {}).update(parameters)
    needed = {"N", "M", "LANES", "CHUNKS", "PART", "GROUPS", "GROUP_W", "ROW_W", "MASKED"}
    if sorted(layers) != list(range(len(layers))) or not layers:
        raise VerifyError("rtl/n3ic_executor.v: its layers are not numbered from 0")
    for index, parameters in layers.items():
        if needed - set(parameters) or not {"THRESHOLDS", "BIASES"} & set(parameters):
            raise VerifyError(f"rtl/n3ic_executor.v: layer {index} lacks parameters")
    return [layers[i] for i in range(len(layers))]


def _int(block: _Parameters, name: str) -> int:
    return int(block[name])


def _lane_words(block: _Parameters) -> int:
    return -(-_int(block, "PART") // 32)


def _memories(index: int, block: _Parameters) -> Iterator[_Memory]:
    words = _int(block, "LANES") * _lane_words(block)
    rows = _int(block, "GROUPS") * _int(block, "CHUNKS")
    depth = 1 << _int(block, "ROW_W")
    yield _Memory(str(block["WEIGHTS"]), index, 0, words, rows, depth)
    if block["MASKED"]:
        yield _Memory(str(block["MASKS"]), index, 1, words, rows, depth)
    side = str(block.get("THRESHOLDS", block.get("BIASES")))
    groups, lanes = _int(block, "GROUPS"), _int(block, "LANES")
    yield _Memory(side, index, 2, lanes, groups, 1 << _int(block, "GROUP_W"))


# --- files -------------------------------------------------------------------------------------


def _text(directory: Path, name: str) -> str:
    try:
        return (directory / name).read_bytes().decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise VerifyError(f"{name}: cannot be read ({error})") from error


def _bank(directory: Path, ending: str, bank: int) -> _Read:
    """Return a reader of one bank of the memory files of one form."""

    def read(memory: _Memory) -> NDArray[np.uint32]:
        name = f"mem/{memory.file}.{ending}"
        text = _text(directory, name)
        if ending == "coe":
            head = "memory_initialization_radix=16;\nmemory_initialization_vector=\n"
            if not text.startswith(head) or not text.endswith(";\n"):
                raise VerifyError(f"{name}: not a memory of radix 16")
            rows = text[len(head) : -2].split(",\n")
        else:
            *rows, rest = text.split("\n")
            if rest:
                raise VerifyError(f"{name}: its last line is cut off")
        if len(rows) != 2 * memory.depth:
            raise VerifyError(f"{name}: {len(rows)} rows, its memory has {2 * memory.depth}")
        for k, row in enumerate(rows):
            if len(row) != 8 * memory.words or not _ROW.fullmatch(row):
                raise VerifyError(f"{name}, row {k}: not {8 * memory.words} hexadecimal digits")
        own = b"".join(bytes.fromhex(r)[::-1] for r in rows[bank * memory.depth :][: memory.depth])
        words = np.frombuffer(own, dtype="<u4").reshape(memory.depth, memory.words)
        if words[memory.used :].any():
            raise VerifyError(f"{name}, bank {bank}: a row that no neuron uses is not 0")
        return words[: memory.used].astype(np.uint32)

    return read


def _update(directory: Path, memories: list[_Memory]) -> _Read:
    """Return a reader of ``update.hex``, which writes every word of every memory once.

    Before them it clears the bank's id, and after them it sets the model's.
    """
    name = "mem/update.hex"
    *lines, rest = _text(directory, name).split("\n")
    marked = [line for line in lines if line.startswith("# sha256 ")]
    others = "".join(f"{line}\n" for line in lines if not line.startswith("# sha256 "))
    if rest or marked != [f"# sha256 {hashlib.sha256(others.encode()).hexdigest()}"]:
        raise VerifyError(f"{name}: damaged: its checksum does not match")
    verilog = _text(directory, "rtl/n3ic_executor.v")
    fields = {
        k: (int(low), (2 << int(high) - int(low)) - 1) for k, high, low in _FIELD.findall(verilog)
    }
    room = {(m.layer, m.kind): np.full((m.used, m.words), -1, dtype=np.int64) for m in memories}
    body = [line for line in lines if not line.startswith("#")]
    _check_id(name, lines, body, fields)
    for line in body[1:-1]:
        write = _WRITE.fullmatch(line)
        if not write:
            raise VerifyError(f"{name}: {line[:40]!r} is not an address and a word")
        address = int(write[1], 16)
        at = {k: address >> low & mask for k, (low, mask) in fields.items()}
        words = room.get((at["layer"], at["kind"]))
        beside = address - sum(at[kind] << low for kind, (low, _) in fields.items())
        # Word 0 of the model's kind is its id, so the threshold is word 1.
        row, word = at["row"], at["word"] - (at["kind"] == 3)
        if words is None or beside or row >= len(words) or not 0 <= word < words.shape[1]:
            raise VerifyError(f"{name}: {write[1]} is not an address of a memory")
        if words[row, word] >= 0:
            raise VerifyError(f"{name}: {write[1]} is written twice")
        words[row, word] = int(write[2], 16)

    def read(memory: _Memory) -> NDArray[np.uint32]:
        words = room[memory.layer, memory.kind]
        if words.min() < 0:
            raise VerifyError(f"{name}: a word of {memory.file} is not written")
        return words.astype(np.uint32)

    return read


def _check_id(
    name: str, lines: list[str], body: list[str], fields: dict[str, tuple[int, int]]
) -> None:
    """Check that the first write clears the bank's id, and the last one sets the head's."""
    named = [line[8:16] for line in lines if line.startswith("# model ")]
    for i, line, row, value, wrong in (
        (0, "first", 1, ["00000000"], "does not clear the bank's id"),
        (-1, "last", 0, named, "is not the id of its model"),
    ):
        write = _WRITE.fullmatch(body[i] if body else "")
        address = 3 << fields["kind"][0] | row << fields["row"][0]
        if not write or int(write[1], 16) != address or value != [write[2]]:
            raise VerifyError(f"{name}: its {line} line {wrong}")


# --- layers ------------------------------------------------------------------------------------


def _layer(where: str, index: int, block: _Parameters, read: _Read) -> DecodedLayer:
    memories = {m.kind: m for m in _memories(index, block)}
    weights = _connections(where, block, read(memories[0]), pad=True)
    mask = _connections(where, block, read(memories[1]), pad=False) if 1 in memories else None
    side = read(memories[2]).reshape(-1)
    if side[_int(block, "M") :].any():
        raise VerifyError(f"{where}: {memories[2].file}: a word that no neuron uses is not 0")
    limits = side[: _int(block, "M")].astype(np.int64)
    if "BIASES" in block:
        limits = np.where(limits >> 31 == 1, limits - (1 << 32), limits)
    return DecodedLayer(weights, limits, mask)


def _connections(where: str, block: _Parameters, words: NDArray[np.uint32], *, pad: bool) -> Bits:
    """Read connections as bits, shape ``(neurons, inputs)``; other bits must equal ``pad``."""
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), axis=1, bitorder="little")
    neuron, source = np.indices((_int(block, "M"), _int(block, "N")))
    lanes, part = _int(block, "LANES"), _int(block, "PART")
    row = neuron // lanes * _int(block, "CHUNKS") + source // part
    column = 32 * _lane_words(block) * (neuron % lanes) + source % part
    out: Bits = bits[row, column].astype(np.bool_)
    bits[row, column] = pad
    if (bits != pad).any():
        kind = "weight" if pad else "mask"
        raise VerifyError(f"{where}: a {kind} bit beside the connections is {int(not pad)}")
    return out
