# SPDX-License-Identifier: Apache-2.0
"""The sequential executor: weights in block RAM, one row of neurons per clock.

The paper's design (section 4.3). Python assigns neurons to rows of the memories, and fills the
parameters of the hand-written blocks in ``rtl/``.
"""
