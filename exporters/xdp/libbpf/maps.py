"""Maps, and what programs write into ring buffers."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from n3ic.exporters.xdp.libbpf.library import (
    SAMPLE,
    BpfError,
    Descriptor,
    MapInfo,
    check,
    cpus,
    information,
    libbpf,
    refused,
)

ANY, NEW, EXISTING = 0, 1, 2  # BPF_ANY, BPF_NOEXIST, BPF_EXIST of a map's update
ARRAY = 2  # BPF_MAP_TYPE_ARRAY
_PER_CPU = (5, 6, 10, 21)  # per-CPU hash, array, LRU hash and cgroup storage
_BATCH = 4096


class Map(Descriptor):
    """A map in the kernel.

    Args:
        fd: its file descriptor.
        owned: whether the descriptor is closed with this.

    Attributes:
        kind: its type (``BPF_MAP_TYPE_*``).
        id: its number in the kernel.
        name: its name, of which the kernel keeps 15 letters.
        key_bytes: bytes of a key.
        value_bytes: bytes of a value; of a per-CPU map, of one CPU's.
        entries: how many it holds at most.
        per_cpu: whether each CPU has values of its own.
    """

    def __init__(self, fd: int, *, owned: bool = False) -> None:
        super().__init__(fd, owned=owned)
        info = information(fd, MapInfo())
        self.kind, self.id = int(info.type), int(info.id)
        self.name = info.name.decode(errors="replace")
        self.key_bytes, self.value_bytes = int(info.key_size), int(info.value_size)
        self.entries = int(info.max_entries)
        self.per_cpu = self.kind in _PER_CPU
        self._stride = (self.value_bytes + 7) // 8 * 8
        self._size = cpus() * self._stride if self.per_cpu else self.value_bytes

    def lookup(self, key: bytes | int) -> bytes | None:
        """A key's value, of a per-CPU map the values of all CPUs one behind the other.

        An integer stands for the key of an array. None where there is no such key.
        """
        value = ctypes.create_string_buffer(self._size)
        result = libbpf().bpf_map_lookup_elem(self.fd, self._key(key), value)
        if result == -errno.ENOENT:
            return None
        check(result, f"map {self.name}: look-up")
        return value.raw

    def each_cpu(self, key: bytes | int) -> list[bytes]:
        """A key's value on each CPU; empty where there is no such key."""
        value = self.lookup(key)
        if value is None:
            return []
        starts = range(0, self._size, self._stride if self.per_cpu else self._size)
        return [value[start : start + self.value_bytes] for start in starts]

    def update(self, key: bytes | int, value: bytes | int, flag: int = ANY) -> None:
        """Set a key's value; of a per-CPU map, one value for every CPU.

        Args:
            key: as in :meth:`lookup`.
            value: of ``value_bytes`` bytes; an integer is a descriptor or a 32-bit number, as
                maps of maps, of programs and of interfaces take it.
            flag: :data:`ANY`, :data:`NEW` (the key is not there yet) or :data:`EXISTING`.
        """
        raw = struct.pack("=I", value) if isinstance(value, int) else value
        if len(raw) != self.value_bytes:
            raise BpfError(
                f"map {self.name}: a value has {self.value_bytes} bytes, got {len(raw)}",
                errno.EINVAL,
            )
        if self.per_cpu:
            raw = raw.ljust(self._stride, b"\0") * cpus()
        result = libbpf().bpf_map_update_elem(self.fd, self._key(key), raw, flag)
        check(result, f"map {self.name}: update")

    def delete(self, key: bytes | int) -> bool:
        """Remove a key; False where there was none."""
        result = libbpf().bpf_map_delete_elem(self.fd, self._key(key))
        if result == -errno.ENOENT:
            return False
        check(result, f"map {self.name}: delete")
        return True

    def keys(self) -> Iterator[bytes]:
        """All keys; of a map that changes meanwhile, about all."""
        key: bytes | None = None
        following = ctypes.create_string_buffer(self.key_bytes)
        while libbpf().bpf_map_get_next_key(self.fd, key, following) == 0:
            key = following.raw
            yield key

    def count(self) -> int:
        """How many keys there are; of a map that changes meanwhile, about."""
        return sum(1 for _ in self.keys())

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All keys with their values, thousands in one call where the kernel knows how."""
        batch, count = self._batch(), ctypes.c_uint32()
        start: Any = None
        following = ctypes.create_string_buffer(max(self.key_bytes, 4))
        while True:
            room = len(batch[0]) // self.key_bytes
            count.value = room
            result = libbpf().bpf_map_lookup_batch(
                self.fd, start, following, *batch, ctypes.byref(count), None
            )
            if result == -errno.ENOSPC and room < self.entries:
                batch = self._batch(2 * room)  # a bucket holds more than a batch
                continue
            if result and result != -errno.ENOENT:
                if start is None:
                    yield from self._items_one_by_one()
                    return
                check(result, f"map {self.name}: look-up of a batch")
            keys, values = (b.raw for b in batch)
            for i in range(count.value):
                key = keys[i * self.key_bytes : (i + 1) * self.key_bytes]
                yield key, values[i * self._size : (i + 1) * self._size]
            if result:
                return
            start = ctypes.create_string_buffer(following.raw, len(following))

    def _batch(self, room: int = _BATCH) -> tuple[Any, Any]:
        return (
            ctypes.create_string_buffer(room * self.key_bytes),
            ctypes.create_string_buffer(room * self._size),
        )

    def _items_one_by_one(self) -> Iterator[tuple[bytes, bytes]]:
        for key in self.keys():
            value = self.lookup(key)
            if value is not None:
                yield key, value

    def _key(self, key: bytes | int) -> bytes:
        raw = key.to_bytes(self.key_bytes, sys.byteorder) if isinstance(key, int) else key
        if len(raw) != self.key_bytes:
            raise BpfError(
                f"map {self.name}: a key has {self.key_bytes} bytes, got {len(raw)}", errno.EINVAL
            )
        return raw


class RingBuffer:
    """Reads the records that programs write into a ring buffer map.

    Args:
        ring: the map.
    """

    def __init__(self, ring: Map) -> None:
        self._records: list[bytes] = []
        self._callback = SAMPLE(self._take)  # kept alive as long as the library may call it
        made = libbpf().ring_buffer__new(ring.fd, self._callback, None, None)
        if not made:
            raise refused(-ctypes.get_errno(), f"map {ring.name}: reading as a ring buffer")
        self._ring = ctypes.c_void_p(made)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading."""
        libbpf().ring_buffer__free(self._ring)
        self._ring = ctypes.c_void_p()

    def poll(self, milliseconds: int = 0) -> list[bytes]:
        """Records since the last call, waiting at most so long for the first."""
        if milliseconds:
            result = libbpf().ring_buffer__poll(self._ring, milliseconds)
        else:
            result = libbpf().ring_buffer__consume(self._ring)
        if result != -errno.EINTR:
            check(min(result, 0), "reading a ring buffer")
        out, self._records = self._records, []
        return out

    def _take(self, _: object, data: int, size: int) -> int:
        self._records.append(ctypes.string_at(data, size))
        return 0


def create_map(
    kind: int, name: str, key_bytes: int, value_bytes: int, entries: int, *, flags: int = 0
) -> Map:
    """A map of its own, such as one to put into a map of maps; close it when it is there."""

    class Options(ctypes.Structure):
        _fields_ = (
            ("size", ctypes.c_size_t),
            ("btf", ctypes.c_uint32 * 5),
            ("map_flags", ctypes.c_uint32),
            ("rest", ctypes.c_uint64 * 2),
        )

    options = Options(size=ctypes.sizeof(Options), map_flags=flags)
    sizes = (key_bytes, value_bytes, entries)
    fd = libbpf().bpf_map_create(kind, name.encode()[:15], *sizes, ctypes.byref(options))
    return Map(check(fd, f"map {name}: creation"), owned=True)


def map_by_id(number: int) -> Map:
    """The map that has a number in the kernel, such as one that a map of maps holds."""
    fd = libbpf().bpf_map_get_fd_by_id(number)
    return Map(check(fd, f"map {number}"), owned=True)


def pinned_map(path: str | Path) -> Map:
    """The map that is pinned at a path."""
    return Map(check(libbpf().bpf_obj_get(os.fsencode(path)), f"{path}"), owned=True)
