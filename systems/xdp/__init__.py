# SPDX-License-Identifier: Apache-2.0
"""Programs of the XDP target on interfaces: load, update, watch, block, unload; packs of n3icd.

May import the core, ``n3ic.exporters.xdp``, which writes and verifies the programs, and
``systems/robustness``, which says whether traffic is like the training rows.
"""
