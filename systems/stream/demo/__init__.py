# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream demo``: the learning loop through the kernel.

May import the other packages of ``stream``, the core, the exporters and ``systems/xdp``.
"""
