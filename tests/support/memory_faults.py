# SPDX-License-Identifier: Apache-2.0
"""Faults of memory: a bit of a network's weights in the kernel changes."""

import ctypes

LANES = 40 + 24  # offset of the first layer's `lanes` in `struct bnn` of bnn.c


def flip_weight(network, bit=0):
    """Flip a bit of the first layer's weights of a KernelNetwork, as the kernel reads them."""
    lanes = ctypes.c_uint64.from_address(network.pointer.value + LANES).value
    word = ctypes.c_uint32.from_address(lanes + bit // 32 * 4)
    word.value ^= 1 << bit % 32
