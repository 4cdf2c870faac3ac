"""Sum-product networks in integers: the second family of models.

A sum-product network (Poon and Domingos, UAI 2011) is a graph of leaves (a distribution of one
feature), products (independent groups of features) and sums (mixtures) that gives the exact
probability of a flow in one pass. Here leaves are tables over the bins between the cuts of a
feature, and probabilities are integers: logarithms of base 2 in fixed point, or fixed point.
"""

from n3ic.model.spn.arithmetic import LinearArithmetic, LogArithmetic
from n3ic.model.spn.network import SpnModel
from n3ic.model.spn.nodes import Leaf, Product, Sum

__all__ = ["Leaf", "LinearArithmetic", "LogArithmetic", "Product", "SpnModel", "Sum"]
