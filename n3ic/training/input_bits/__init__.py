# SPDX-License-Identifier: Apache-2.0
"""Choice of input bits: which features, and where they are cut; one module per encoding.

Every function takes integer columns of training rows, never of validation or test rows, and returns
fields of an :class:`~n3ic.model.inputs.InputSpec`. All choices are deterministic; ties go to the
earlier name.
"""

from n3ic.training.input_bits.binary import binary_fields
from n3ic.training.input_bits.boosted import (
    boosted_cuts,
    boosted_fields,
    boosted_trees,
    fault_of,
)
from n3ic.training.input_bits.chi2 import chi2_features, chi2_scores
from n3ic.training.input_bits.columns import thermometer_fields
from n3ic.training.input_bits.greedy import greedy_fields
from n3ic.training.input_bits.quantile import quantile_fields
from n3ic.training.input_bits.tree import tree_cuts, tree_fields
from n3ic.training.input_bits.weighted import share_bits, weighted_fields

__all__ = [
    "binary_fields",
    "boosted_cuts",
    "boosted_fields",
    "boosted_trees",
    "chi2_features",
    "chi2_scores",
    "fault_of",
    "greedy_fields",
    "quantile_fields",
    "share_bits",
    "thermometer_fields",
    "tree_cuts",
    "tree_fields",
    "weighted_fields",
]
