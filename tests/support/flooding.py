# SPDX-License-Identifier: Apache-2.0
"""IPv6 flow keys of somebody who wants them all in one place of a flow table."""

import numpy as np

from n3ic.meter.compiled import KEY


def keys_of(words):
    """Flow keys whose two addresses are these words of 64 bits, shape ``(keys, 4)``.

    The first byte of a source is 0x20, of a destination 0x30: all keys are canonical.
    """
    keys = np.zeros(len(words), dtype=np.dtype(list(KEY), align=True))
    addresses = np.ascontiguousarray(words, dtype="<u8").view(np.uint8).reshape(-1, 32)
    keys["source"], keys["destination"] = addresses[:, :16], addresses[:, 16:]
    keys["source"][:, 0], keys["destination"][:, 0] = 0x20, 0x30
    keys["source_port"], keys["destination_port"] = 1024, 53
    keys["protocol"], keys["address_bytes"] = 17, 16
    return keys


def _patterns(count):
    """Two bytes of each number below ``count``."""
    return np.divmod(np.arange(count, dtype=np.uint64), np.uint64(256))


def random_keys(count):
    """What the others are compared with."""
    return keys_of(np.random.default_rng(1).integers(0, 2**64, (count, 4), dtype=np.uint64))


def top_bits(count):
    """Keys whose words differ in their topmost 4 bits only."""
    numbers = np.arange(count, dtype=np.uint64)
    shifts = np.array([0, 4, 8, 12], dtype=np.uint64)
    nibbles = numbers[:, None] >> shifts & np.uint64(15)
    return keys_of(nibbles << np.uint64(60))


def top_bits_of_halves(count):
    """Keys whose words of 32 bits differ in their topmost 2 bits only."""
    numbers = np.arange(count, dtype=np.uint64)
    shifts = np.arange(0, 16, 4, dtype=np.uint64)
    parts = numbers[:, None] >> shifts
    low, high = parts & np.uint64(3), parts >> np.uint64(2) & np.uint64(3)
    return keys_of(low << np.uint64(30) | high << np.uint64(62))


def in_a_row(count):
    """Keys of a scan: the destination counts."""
    words = np.zeros((count, 4), dtype=np.uint64)
    words[:, 3] = np.arange(count, dtype=np.uint64).byteswap()
    return keys_of(words)


def against_the_old_hash(count):
    """Keys that stay equal through ``h = (h ^ word) * c, h ^= h >> 29``, whatever ``h`` was before.

    A change of a word's topmost byte changes that byte of the product alone, and the shift copies
    it to bits 27 to 34: a change of the next word at both places takes it back.
    """
    first, second = _patterns(count)
    words = np.zeros((count, 4), dtype=np.uint64)
    words[:, 0] = first << np.uint64(56)
    words[:, 1] = second << np.uint64(56) ^ second << np.uint64(27)
    return keys_of(words)


FAMILIES = (random_keys, top_bits, top_bits_of_halves, in_a_row, against_the_old_hash)


def old_hash(seed, keys):
    """What hashed them before."""
    hashes = np.full(len(keys), seed, dtype=np.uint64)
    for word in keys.view("<u8").reshape(len(keys), -1).T:
        hashes = (hashes ^ word) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes >> np.uint64(32)
