# SPDX-License-Identifier: Apache-2.0
"""Passes on the integer network, which remove what makes no difference to its scores.

A pass is a function from one draft of a network to the next, in a module of its own; each is
exact by construction.
"""

from n3ic.model.passes.draft import Removed
from n3ic.model.passes.pipeline import Findings, Simplified, analyse, simplify, unchanged

__all__ = ["Findings", "Removed", "Simplified", "analyse", "simplify", "unchanged"]
