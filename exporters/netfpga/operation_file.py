# SPDX-License-Identifier: Apache-2.0
"""Reads and writes text files of write-port operations: a head, then one operation per line.

The head consists of lines of ``# key value``. Its first line gives the format's version, and its
last one the SHA-256 of all other lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import UsageError

_SEAL = "sha256"


@dataclass(frozen=True)
class OperationFile:
    """One kind of such file.

    Attributes:
        name: name of the kind, with its article.
        expected: description of a valid file, for error messages.
        format: version of the format.
        keys: keys of the head, without the seal; the value of the first one is the format.
        most_bytes: maximum size; larger files are not read.
    """

    name: str
    expected: str
    format: str
    keys: tuple[str, ...]
    most_bytes: int

    def text(self, values: Sequence[str], lines: Sequence[str]) -> str:
        """Compose the text of a file.

        Args:
            values: values of all keys but the first.
            lines: ASCII lines, one operation each.
        """
        head = [f"# {k} {v}" for k, v in zip(self.keys, (self.format, *values), strict=True)]
        return "\n".join([*head, f"# {_SEAL} {_digest([*head, *lines])}", *lines]) + "\n"

    def read(self, path: str | Path) -> tuple[dict[str, str], list[str]]:
        """Read the head and the lines of a file, and check its seal.

        Raises:
            UsageError: the file cannot be read, is damaged, or is of another kind.
        """
        file = Path(path)
        try:
            if file.stat().st_size > self.most_bytes:
                raise UsageError(f"{file}: larger than {self.name} ({self.most_bytes >> 20} MiB)")
            *lines, rest = file.read_bytes().decode("ascii").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file}: not {self.name} ({error})") from error
        count = len(self.keys)
        head = dict(line.removeprefix("# ").partition(" ")[::2] for line in lines[: count + 1])
        if rest or tuple(head) != (*self.keys, _SEAL) or head[self.keys[0]] != self.format:
            raise UsageError(f"{file}: not {self.expected}")
        body = lines[count + 1 :]
        if head[_SEAL] != _digest([*lines[:count], *body]):
            raise UsageError(f"{file}: damaged: its checksum does not match")
        return head, body


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode("ascii")).hexdigest()
