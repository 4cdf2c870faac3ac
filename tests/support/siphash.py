# SPDX-License-Identifier: Apache-2.0
"""The flow hash of the generated C, by SipHash in plain Python."""

import struct

from n3ic.meter.siphash import siphash


def message_of(source, destination, source_port, destination_port, protocol):
    """What of a flow's key is hashed: addresses as long as they are, ports, protocol."""
    ports = source_port.to_bytes(2, "little") + destination_port.to_bytes(2, "little")
    return source + destination + ports + bytes([protocol])


def udp_key(frame):
    """The canonical key of a UDP frame over IPv4: addresses, ports, protocol."""
    ends, ports = frame[26:34], struct.unpack(">HH", frame[34:38])
    # Addresses are compared as numbers of the processor.
    one, other = sorted([(ends[:4][::-1], ports[0]), (ends[4:][::-1], ports[1])])
    return one[0][::-1], other[0][::-1], one[1], other[1], frame[23]


def bucket_of(key, secret, buckets):
    """The bucket of a canonical key, and its tag there."""
    value = siphash(secret, message_of(*key))
    return (value >> 32) * buckets >> 32, value & 0xFFFFFFFF | 1


def apart(frames, secret, buckets):
    """Those of some UDP frames whose flows share no bucket with one before.

    A CPU gives up a packet, and counts it, where another holds its bucket for long, interrupted.
    """
    taken = set()
    for frame in frames:
        bucket, _ = bucket_of(udp_key(frame), secret, buckets)
        if bucket not in taken:
            taken.add(bucket)
            yield frame
