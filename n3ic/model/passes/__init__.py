# SPDX-License-Identifier: Apache-2.0
"""Passes on the integer network, which remove parts that do not affect its scores.

A pass maps a draft of a network to the next, in its own module, and is exact by construction.
"""

from n3ic.model.passes.pipeline import simplify
from n3ic.model.simplified import Findings, Removed, Simplified, unchanged

__all__ = ["Findings", "Removed", "Simplified", "simplify", "unchanged"]
