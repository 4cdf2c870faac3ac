# SPDX-License-Identifier: Apache-2.0
"""The network of an XDP program: its structure is compiled in, its numbers are one map value.

:func:`~.structure.structure_of` computes the :class:`~.sums.Structure` that networks share,
:func:`~.source.network_source` its C header, and :func:`~.values.value_bytes` the map value of each
network. If :func:`~.values.value_bytes` accepts a retrained network, it can be swapped in the map;
otherwise it needs a new program.

In C, ``network_run(n, features, out)`` writes scores, class, margin and verdict to ``out``;
features are in the order of ``Structure.features``. If ``NETWORK_KEEP_ROWS`` is defined before the
header is included, ``out->row`` holds the row of each selector: :func:`~.rows.bits_of` converts
rows to input bits, and :func:`~.rows.bit_counts` converts row counts to counts of set bits. To use
packed input bits instead of features, make a structure with ``bits=True`` and give it its own
prefix.
"""
