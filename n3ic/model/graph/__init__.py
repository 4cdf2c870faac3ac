# SPDX-License-Identifier: Apache-2.0
"""The graph of integer operations: what a family gives and a target writes.

:mod:`.operations` lists the operations and the :class:`~.operations.Graph` that holds them,
:mod:`.builder` makes a graph in its normal form, and :mod:`.evaluate` computes its scores.
"""
