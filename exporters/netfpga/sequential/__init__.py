# SPDX-License-Identifier: Apache-2.0
"""The sequential executor: weights in block RAM, one row of neurons per clock.

This is the paper's design (section 4.3). Python assigns neurons to rows of the memories, and sets
the parameters of the hand-written blocks in ``rtl/``.
"""
