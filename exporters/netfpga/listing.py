"""A text file for what drives the card's write port: a sealed head, then an operation a line.

The head is lines of ``# key value``. The first says which format it is, the last is the SHA-256 of
all other lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import UsageError

_SEAL = "sha256"


@dataclass(frozen=True)
class Listing:
    """A kind of such files.

    Attributes:
        name: what it is, with its article.
        expected: what is expected of a file, for the error.
        format: version of the format.
        keys: of the head, without the seal; the first one's value is the format.
        most_bytes: of a file; larger ones are not read.
    """

    name: str
    expected: str
    format: str
    keys: tuple[str, ...]
    most_bytes: int

    def text(self, values: Sequence[str], lines: Sequence[str]) -> str:
        """A file.

        Args:
            values: of the keys behind the first.
            lines: of ASCII, an operation each.
        """
        head = [f"# {k} {v}" for k, v in zip(self.keys, (self.format, *values), strict=True)]
        return "\n".join([*head, f"# {_SEAL} {_digest([*head, *lines])}", *lines]) + "\n"

    def read(self, path: str | Path) -> tuple[dict[str, str], list[str]]:
        """Head and lines of a file that is whole.

        Raises:
            UsageError: it cannot be read, is damaged, or of another kind.
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
