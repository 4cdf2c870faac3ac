# SPDX-License-Identifier: Apache-2.0
"""Functions on shared packet buffers: processes that see DPDK's packets without a copy.

``c/`` holds the manager, which owns ports and buffers, and a function's side of the shared memory.
May import the core, the exporters, and ``messages``, which a ready function uses. Ready functions
that learn lie in ``learning`` and are loaded by name.
"""
