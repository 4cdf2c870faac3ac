# SPDX-License-Identifier: Apache-2.0
"""Target ``nfp``: micro-C for the Netronome NFP4000.

It may import ``n3ic`` and ``n3ic.families``.
"""
