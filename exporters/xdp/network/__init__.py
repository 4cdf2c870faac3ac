# SPDX-License-Identifier: Apache-2.0
"""The network of an XDP program: its structure is compiled in, its numbers are one map value.

:func:`structure_of` computes the structure that one or several networks share,
:func:`network_source` its C header, and :func:`value_bytes` the map value of each network. If
:func:`value_bytes` accepts a retrained network, it can be swapped in the map; otherwise it needs a
new program.

In C, ``network_run(n, features, out)`` writes scores, class, margin and verdict to ``out``;
features are in the order of ``Structure.features``. If ``NETWORK_KEEP_ROWS`` is defined before the
header is included, ``out->row`` holds the row of each selector: :func:`bits_of` converts rows to
input bits, and :func:`bit_counts` converts row counts to counts of set bits. To use packed input
bits instead of features, make a structure with ``bits=True`` and give it its own prefix.
"""

from __future__ import annotations

from n3ic.exporters.xdp.network.rows import bit_counts, bits_of, row_starts
from n3ic.exporters.xdp.network.source import network_source
from n3ic.exporters.xdp.network.structure import Structure, structure_of
from n3ic.exporters.xdp.network.values import layout, value_bytes

__all__ = [
    "Structure",
    "bit_counts",
    "bits_of",
    "layout",
    "network_source",
    "row_starts",
    "structure_of",
    "value_bytes",
]
