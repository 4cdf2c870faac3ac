# SPDX-License-Identifier: Apache-2.0
"""Words of a weights file in sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from n3ic.model.bits import Words


@dataclass(frozen=True, eq=False)
class SectionedWords:
    """The words of ``weights.bin`` and the positions of their parts.

    Attributes:
        words: uint32 array of shape ``(words,)``.
        starts: index of the first word of each section, in order of position.
    """

    words: Words
    starts: dict[str, int]

    @property
    def sections(self) -> dict[str, int]:
        """Bytes by section."""
        ends = [*list(self.starts.values())[1:], len(self.words)]
        return {
            name: 4 * (end - start)
            for (name, start), end in zip(self.starts.items(), ends, strict=True)
        }

    @property
    def size(self) -> int:
        """Size in bytes."""
        return 4 * len(self.words)

    def to_bytes(self) -> bytes:
        """Serialise the words as ``weights.bin``."""
        return self.words.astype("<u4").tobytes()

    def explain(self, word: int) -> str:
        """Describe where a word lies, such as ``trees, word 3``."""
        name, start = [(n, s) for n, s in self.starts.items() if s <= word][-1]
        return f"{name}, word {word - start}"


def halves(numbers: Sequence[int]) -> list[int]:
    """Numbers of 16 bits as words, the lower half first; the last half may be 0."""
    even = [*numbers, *[0] * (len(numbers) % 2)]
    return [low | high << 16 for low, high in zip(even[::2], even[1::2], strict=True)]
