# SPDX-License-Identifier: Apache-2.0
"""Target ``xdp``: meter, network and verdict in the Linux kernel.

It may import ``n3ic``, ``n3ic.families`` and the target ``host``. This file imports nothing, so
that ``n3ic --help`` stays fast.
"""
