# SPDX-License-Identifier: Apache-2.0
"""The target ``dpdk``: meter, network and verdict as an application of DPDK.

Nothing is imported here, so that ``n3ic --help`` stays fast.
"""
