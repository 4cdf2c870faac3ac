# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks in integers: a family of models.

A sum-product network (Poon and Domingos, UAI 2011) is a graph of leaves (a distribution of one
feature), products (independent groups of features) and sums (mixtures) that gives the exact
probability of a flow in one pass. Here leaves are tables over the bins between the cuts of a
feature, and probabilities are integers: logarithms of base 2 in fixed point, or fixed point.

``family.py`` and ``learner.py`` are the family's interfaces to the core; entry points name both.
The model is in ``network.py``, ``nodes.py`` and ``arithmetic.py``; exporters use ``operations.py``;
training is in ``learn.py``, ``fold.py`` and ``train.py``.
"""
