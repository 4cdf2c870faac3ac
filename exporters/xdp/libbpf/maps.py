# SPDX-License-Identifier: Apache-2.0
"""BPF maps, and the records that programs write into ring buffers."""

from __future__ import annotations

import ctypes
import errno
import struct
import sys
from collections.abc import Iterator
from typing import Any

from n3ic.exporters.xdp.libbpf.library import (
    SAMPLE,
    BpfError,
    Closing,
    Descriptor,
    MapInfo,
    check,
    cpus,
    errno_error,
    information,
    libbpf,
)

ANY, NEW, EXISTING = 0, 1, 2  # update flags BPF_ANY, BPF_NOEXIST, BPF_EXIST
ARRAY = 2  # BPF_MAP_TYPE_ARRAY
_PER_CPU = (5, 6, 10, 21)  # per-CPU hash, array, LRU hash and cgroup storage
_BATCH, _BATCH_BYTES = 4096, 1 << 20  # maximum keys and value bytes per batch


class BpfMap(Descriptor):
    """A map in the kernel.

    Args:
        fd: file descriptor.
        owned: whether closing this object closes the descriptor.

    Attributes:
        kind: type of the map (``BPF_MAP_TYPE_*``).
        id: number of the map in the kernel.
        name: name, truncated to 15 characters by the kernel.
        key_bytes: size of a key in bytes.
        value_bytes: size of a value in bytes; for a per-CPU map, of one CPU's value.
        entries: maximum number of entries.
        per_cpu: whether each CPU has its own values.
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
        """Return the value of a key; for a per-CPU map, the values of all CPUs concatenated.

        An integer is the key of an array. The result is None if the key does not exist.
        """
        value = ctypes.create_string_buffer(self._size)
        result = libbpf().bpf_map_lookup_elem(self.fd, self._key(key), value)
        if result == -errno.ENOENT:
            return None
        check(result, f"map {self.name}: an entry cannot be read")
        return value.raw

    def each_cpu(self, key: bytes | int) -> list[bytes]:
        """Return the value of a key on each CPU; empty if the key does not exist."""
        value = self.lookup(key)
        if value is None:
            return []
        starts = range(0, self._size, self._stride if self.per_cpu else self._size)
        return [value[start : start + self.value_bytes] for start in starts]

    def update(self, key: bytes | int, value: bytes | int, flag: int = ANY) -> None:
        """Set the value of a key; for a per-CPU map, the same value on every CPU.

        Args:
            key: key as for :meth:`lookup`.
            value: ``value_bytes`` bytes; or an integer: a descriptor or 32-bit number, as maps of
                maps, programs and interfaces take them.
            flag: :data:`ANY`, :data:`NEW` (the key must not exist) or :data:`EXISTING`.
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
        check(result, f"map {self.name}: an entry cannot be written")

    def delete(self, key: bytes | int) -> bool:
        """Remove a key; return False if it did not exist."""
        result = libbpf().bpf_map_delete_elem(self.fd, self._key(key))
        if result == -errno.ENOENT:
            return False
        check(result, f"map {self.name}: an entry cannot be deleted")
        return True

    def keys(self) -> Iterator[bytes]:
        """Iterate over all keys; approximate while the map changes."""
        key: bytes | None = None
        following = ctypes.create_string_buffer(self.key_bytes)
        while libbpf().bpf_map_get_next_key(self.fd, key, following) == 0:
            key = following.raw
            yield key

    def count(self) -> int:
        """Return the number of keys; approximate while the map changes."""
        return sum(1 for _ in self.keys())

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over all keys and values, in batches if the kernel supports it."""
        for keys, values in self._batches():
            for i in range(len(keys) // self.key_bytes):
                key = keys[i * self.key_bytes : (i + 1) * self.key_bytes]
                yield key, values[i * self._size : (i + 1) * self._size]

    def contents(self) -> tuple[bytes, bytes]:
        """Return all keys and all values, each concatenated, in one order."""
        batches = list(self._batches())
        return b"".join(keys for keys, _ in batches), b"".join(values for _, values in batches)

    def values(self) -> bytes:
        """Return the values of all keys, concatenated."""
        return b"".join(values for _, values in self._batches())

    def _batches(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield batches of keys and values, each concatenated."""
        room = min(max(_BATCH_BYTES // self._size, 64), _BATCH)
        batch, count = self._batch(room), ctypes.c_uint32()
        start: Any = None
        following = ctypes.create_string_buffer(max(self.key_bytes, 4))
        while True:
            room = len(batch[0]) // self.key_bytes
            count.value = room
            result = libbpf().bpf_map_lookup_batch(
                self.fd, start, following, *batch, ctypes.byref(count), None
            )
            if result == -errno.ENOSPC and room < self.entries:
                batch = self._batch(2 * room)  # one hash bucket of the map exceeds the batch
                continue
            if result and result != -errno.ENOENT:
                if start is None:
                    yield from self._items_one_by_one()
                    return
                check(result, f"map {self.name}: a batch cannot be read")
            sizes = (count.value * self.key_bytes, count.value * self._size)
            keys, values = (ctypes.string_at(b, size) for b, size in zip(batch, sizes, strict=True))
            yield keys, values
            if result:
                return
            start = ctypes.create_string_buffer(following.raw, len(following))

    def _batch(self, room: int) -> tuple[Any, Any]:
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


class RingBuffer(Closing):
    """Reads records that programs write into a ring buffer map.

    Args:
        ring: the ring buffer map.
    """

    def __init__(self, ring: BpfMap) -> None:
        self._records: list[bytes] = []
        self._callback = SAMPLE(self._take)  # keep a reference: libbpf calls it
        address = libbpf().ring_buffer__new(ring.fd, self._callback, None, None)
        if not address:
            raise errno_error(-ctypes.get_errno(), f"map {ring.name}: reading as a ring buffer")
        self._ring = ctypes.c_void_p(address)

    def close(self) -> None:
        """Stop reading and free the buffer."""
        libbpf().ring_buffer__free(self._ring)
        self._ring = ctypes.c_void_p()

    def poll(self, milliseconds: int = 0) -> list[bytes]:
        """Return the records since the last call; wait up to ``milliseconds`` for the first."""
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
) -> BpfMap:
    """Create a map, for example for a map of maps; the caller closes it once it is in there."""

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
    return BpfMap(check(fd, f"map {name} cannot be made"), owned=True)


def map_by_id(number: int) -> BpfMap:
    """Open a map by its kernel number, for example one that a map of maps holds."""
    fd = libbpf().bpf_map_get_fd_by_id(number)
    return BpfMap(check(fd, f"map {number}"), owned=True)
