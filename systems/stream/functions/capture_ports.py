# SPDX-License-Identifier: Apache-2.0
"""Captures behind DPDK's ports: whether a meter gets from them what training got."""

from __future__ import annotations

from n3ic.errors import UsageError
from n3ic.meter.capture import Capture

_KEY = "rx_pcap="


def captures_of(device: str) -> list[str]:
    """The captures that a ``net_pcap`` device replays."""
    return [o.removeprefix(_KEY) for o in device.split(",")[1:] if o.startswith(_KEY)]


def check_whole_frames(device: str) -> None:
    """Refuse a device that replays a capture of cut frames.

    ``net_pcap`` gives the bytes that the capture holds of a frame, without its length on the wire.
    Features of lengths would differ from those of training, and so would verdicts.

    Args:
        device: a DPDK device, as in :attr:`.FunctionChain.ports`.

    Raises:
        UsageError: a frame of a capture is cut; says which, and what to do.
        DataError: a capture cannot be read.
    """
    for path in captures_of(device):
        with Capture(path) as capture:
            for number, (frame, length, _) in enumerate(capture.packets(), 1):
                if len(frame) < length:
                    raise UsageError(
                        f"{path}: frame {number:,} is cut: {len(frame):,} of {length:,} bytes. "
                        "DPDK's port takes a frame to be as long as its bytes, so verdicts would "
                        "not be those of n3ic predict: expected whole frames; n3ic stream run "
                        f"capture:{path} reads lengths from the file"
                    )
