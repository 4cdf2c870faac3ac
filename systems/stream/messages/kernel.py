# SPDX-License-Identifier: Apache-2.0
"""The kernel of the pull: the device's threads read packet buffers of the host.

CUDA and Numba's simulator of it share this source; Numba chooses between them once, when
``numba.cuda`` is imported.
"""

from __future__ import annotations

from numba import cuda

from n3ic.systems.stream.messages.protocol import HEADER_BYTES


@cuda.jit
def pull(buffers, ring, first, tensor, word):  # type: ignore[no-untyped-def] # pragma: no cover
    """Copy the payloads of packets into a tensor: one block per packet, one word per thread.

    Args:
        buffers: packet buffers, words of shape ``(words,)``, in the host's memory.
        ring: byte of the buffers where a packet starts, row, first byte of the row and number of
            bytes of each packet, int64 of shape ``(entries, 4)``, in the host's memory.
        first: entry of the first packet.
        tensor: words of shape ``(rows, words)``, in the device's memory.
        word: bytes of a word.
    """
    at = (first + cuda.blockIdx.x) % ring.shape[0]
    start, row = (ring[at, 0] + HEADER_BYTES) // word, ring[at, 1]
    # A part begins on a word boundary; rows have room for the rest of the last word.
    offset, words = ring[at, 2] // word, (ring[at, 3] + word - 1) // word
    for i in range(cuda.threadIdx.x, words, cuda.blockDim.x):
        tensor[row, offset + i] = buffers[start + i]
