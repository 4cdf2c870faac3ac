# SPDX-License-Identifier: Apache-2.0
"""Boosted look-up tables in integers: a family of models.

Each table is addressed by a few input bits and holds small signed entries; the score of a class is
the sum of the entries that an input addresses, plus a bias.

``family.py`` and ``learner.py`` are the family's interfaces to the core; entry points name both.
The model is in ``network.py``, its exact simplification in ``simplify.py``; exporters use
``operations.py``; training is in ``loss.py``, ``boosting.py``, ``rounding.py`` and ``train.py``.
"""
