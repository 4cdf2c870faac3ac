# SPDX-License-Identifier: Apache-2.0
"""``update.hex``: a model as write operations for any driver, for one executor.

The head is lines of ``# key value``; each line after it is an address and a word in hexadecimal::

    # n3ic-update 2
    # executor 256-32-16-2 score=12 lanes=1,1,1 masks=0,0,0 address=2,2,5,3
    # model DIGEST
    # words 1234
    # sha256 DIGEST OF ALL OTHER LINES
    180 00000000
    000 deadbeef

The first write clears the id of the bank that is written, and the last one sets the model's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import UsageError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.operation_file import OperationFile
from n3ic.exporters.netfpga.sequential.layout import SequentialLayout
from n3ic.exporters.netfpga.sequential.memory_contents import writes
from n3ic.model.network import BinaryModel

_UPDATE = OperationFile(
    name="an update",
    expected="an update of format 2, as mem/update.hex is",
    format="2",
    keys=("n3ic-update", "executor", "model", "words"),
    most_bytes=1 << 28,
)
_WRITE = re.compile(r"[0-9a-f]{1,8} [0-9a-f]{8}")


@dataclass(frozen=True)
class Update:
    """A model as writes.

    Attributes:
        model: hexadecimal digest of the model; its first four bytes are the id.
        writes: addresses and words in order; the first one clears the bank's id, the last one
            sets it.
    """

    model: str
    writes: tuple[tuple[int, int], ...]


def update_text(model: BinaryModel, layout: SequentialLayout) -> str:
    """Compose the update file of a model for the executors of a layout.

    Raises:
        ExportError: the model does not fit the layout.
    """
    return compose(layout.text, model.digest, layout.address_map.width, writes(model, layout))


def compose(executor: str, digest: str, width: int, contents: Sequence[tuple[int, int]]) -> str:
    """Compose an update file.

    Args:
        executor: description of the executor that it is for.
        digest: hexadecimal digest of the model.
        width: bits of an address.
        contents: addresses and words, in order.
    """
    digits = -(-width // 4)
    lines = [f"{address:0{digits}x} {word:08x}" for address, word in contents]
    return _UPDATE.text((executor, digest, str(len(lines))), lines)


def read_update(path: str | Path, core: CorePorts) -> Update:
    """Read the writes of an update file, and check that it is intact and made for a core.

    Raises:
        UsageError: the file cannot be read, is damaged, or was made for another executor; the error
            names both executors.
    """
    head, body = _UPDATE.read(path)
    if head["executor"] != core.update:
        raise UsageError(
            f"{path}: made for the executor {head['executor']}, this one is "
            f"{core.update or 'without a write port'}: export both models with --no-simplify "
            "and the same options (--score-bits, --masks all of binary networks); look-up tables "
            "need the same indices, too (train with --input-of)"
        )
    if head["words"] != str(len(body)) or not all(_WRITE.fullmatch(line) for line in body):
        raise UsageError(f"{path}: not {head['words']} lines of an address and a word")
    pairs = tuple((int(a, 16), int(w, 16)) for a, w in (line.split() for line in body))
    if any(address >> core.wr_aw for address, _ in pairs):
        raise UsageError(f"{path}: an address has more than {core.wr_aw} bits")
    return Update(head["model"], pairs)
