# SPDX-License-Identifier: Apache-2.0
"""Passes on the integer network: what makes no difference to its scores is found and left out.

A pass is a function from one draft of a network to the next and stands in a file of its own;
each is exact by construction. Later passes see what earlier ones made.
"""

from n3ic.model.passes.draft import Removed
from n3ic.model.passes.pipeline import Findings, Simplified, analyse, simplify, unchanged

__all__ = ["Findings", "Removed", "Simplified", "analyse", "simplify", "unchanged"]
