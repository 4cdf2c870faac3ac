# SPDX-License-Identifier: Apache-2.0
"""The target ``xdp``: meter, network and verdict in the Linux kernel.

Nothing is imported here, so that ``n3ic --help`` stays fast.
"""
