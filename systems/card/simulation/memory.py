# SPDX-License-Identifier: Apache-2.0
"""On-board memory of a card's tenants: an address space for each, with a flat page table.

SuperNIC, section IV-F: a tenant has 1 GB of virtual addresses in pages of 2 MB, so that its table
is one level of 512 entries. Pages are taken from a free list at the first access. Permissions are
checked at every access. Memory may be overcommitted.

The paper leaves open where a page goes if memory is full. Here it goes to the host. A tenant at or
above its share evicts its own least recently used page; one below its share evicts a page of the
tenant furthest above its share.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from n3ic.errors import N3icError

PAGE_BYTES = 2 << 20
SPACE_BYTES = 1 << 30
PAGES_OF_SPACE = SPACE_BYTES // PAGE_BYTES

Kind = Literal["read", "write"]


class MemoryFaultError(N3icError):
    """A forbidden access of a tenant; the card refuses it without effect."""


@dataclass(frozen=True)
class Segment:
    """Pages of an address space with the same permissions.

    Attributes:
        first: number of the first page, from 0.
        pages: number of pages.
        write: whether the tenant's tasks may write to them.
    """

    first: int
    pages: int
    write: bool = True


@dataclass(frozen=True)
class MemoryTiming:
    """Duration of accesses.

    Attributes:
        lookup: cycles of a look-up in the on-chip table.
        access: cycles of an access to on-board memory.
        swap_seconds: seconds to move a page to or from the host; 2 MB at 12.5 GB/s (PCIe 3.0 x16).
    """

    lookup: int = 2
    access: int = 30
    swap_seconds: float = PAGE_BYTES / 12.5e9


@dataclass(frozen=True)
class Access:
    """Effect of an access.

    Attributes:
        frame: physical page that was accessed.
        allocated: whether this was the first access to the page.
        swapped_in: whether the page was fetched from the host.
        swapped_out: whether another page was moved to the host to make room.
    """

    frame: int
    allocated: bool = False
    swapped_in: bool = False
    swapped_out: bool = False

    def cycles(self, timing: MemoryTiming, clock_hz: float) -> int:
        """Return the clock cycles of the access."""
        moves = self.swapped_in + self.swapped_out
        return timing.lookup + timing.access + round(moves * timing.swap_seconds * clock_hz)


@dataclass
class _Space:
    """A tenant's page table: frames of its on-board pages, least recently used first."""

    segments: tuple[Segment, ...]
    frames: OrderedDict[int, int] = field(default_factory=OrderedDict)
    elsewhere: set[int] = field(default_factory=set)


class OnBoardMemory:
    """A card's on-board memory, shared by tenants that cannot reach each other's pages.

    Args:
        frames: number of physical pages.
        shares: number of pages that each tenant is entitled to, by name.
    """

    def __init__(self, frames: int, shares: Mapping[str, int]) -> None:
        # Reversed, because pop() takes from the end: frames are handed out from 0 upwards.
        self._free = list(range(frames - 1, -1, -1))
        self._shares = dict(shares)
        self._spaces = {name: _Space(()) for name in shares}

    def map(self, tenant: str, segments: tuple[Segment, ...]) -> None:
        """Set the permissions of a tenant's addresses; frames are allocated at the first access.

        Raises:
            MemoryFaultError: segments overlap, or do not fit the address space.
        """
        end = 0
        for segment in sorted(segments, key=lambda s: s.first):
            if segment.first < end or segment.pages < 1:
                raise MemoryFaultError(f"{tenant}: segments must not overlap or be empty")
            end = segment.first + segment.pages
        if end > PAGES_OF_SPACE:
            raise MemoryFaultError(
                f"{tenant}: {end} pages of {PAGE_BYTES >> 20} MB, an address space has "
                f"{PAGES_OF_SPACE}"
            )
        self._spaces[tenant].segments = segments

    def access(self, tenant: str, address: int, kind: Kind = "read") -> Access:
        """Translate an address of a tenant's own space, and bring its page on board if necessary.

        Raises:
            MemoryFaultError: the address is unmapped or read-only, or no frame is available.
        """
        space = self._spaces[tenant]
        page = address // PAGE_BYTES
        segment = next(
            (s for s in space.segments if s.first <= page < s.first + s.pages and address >= 0),
            None,
        )
        if segment is None:
            raise MemoryFaultError(f"{tenant}: address {address:#x} is not mapped")
        if kind == "write" and not segment.write:
            raise MemoryFaultError(f"{tenant}: address {address:#x} may only be read")
        if page in space.frames:
            space.frames.move_to_end(page)
            return Access(space.frames[page])
        # Permissions were checked above, so a forbidden access never evicts a page of anyone.
        swapped_out = not self._free
        frame = self._evict(tenant) if swapped_out else self._free.pop()
        swapped_in = page in space.elsewhere
        space.elsewhere.discard(page)
        space.frames[page] = frame
        return Access(frame, not swapped_in, swapped_in, swapped_out)

    @property
    def free(self) -> int:
        """Number of free frames."""
        return len(self._free)

    def _evict(self, asking: str) -> int:
        """Evict a page, and return its frame.

        The page is one of the asking tenant, or of the tenant furthest above its share.

        Raises:
            MemoryFaultError: all pages are within the shares of other tenants.
        """
        over = {
            name: len(space.frames) - self._shares[name] for name, space in self._spaces.items()
        }
        # A tenant at its share evicts its own page; one below its share evicts from the tenant that
        # is furthest above its share.
        victim = asking if over[asking] >= 0 else max(over, key=lambda n: (over[n], n))
        space = self._spaces[victim]
        if not space.frames or (victim != asking and over[victim] <= 0):
            raise MemoryFaultError(
                f"{asking}: no page is free, all are within the shares of others"
            )
        page, frame = space.frames.popitem(last=False)
        space.elsewhere.add(page)
        return frame
