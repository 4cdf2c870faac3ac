# SPDX-License-Identifier: Apache-2.0
"""Runs programs of the XDP target on interfaces and writes packs for the daemon ``n3icd``.

May import the core and ``n3ic.exporters.xdp``, which writes and verifies the programs.
"""
