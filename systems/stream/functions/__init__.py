# SPDX-License-Identifier: Apache-2.0
"""Functions on shared packet buffers: processes that see packets of DPDK without a copy.

``c/`` holds the manager, which owns ports and buffers, and a function's side of the shared memory.
"""
