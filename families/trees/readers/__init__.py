# SPDX-License-Identifier: Apache-2.0
"""Readers of fitted trees of other libraries.

``estimators.py`` takes fitted estimators (:func:`n3ic.from_sklearn`), by ``treelite_ensembles.py``;
``onnx_ensembles.py`` reads ONNX-ML graphs. Both give an :class:`.ensemble.Ensemble`, whose numbers
are floats, and what computes the library's own classes. ``conversion.py`` makes the integer model:
comparisons become cuts (``cuts.py``) of columns (``columns.py``), leaf values integers
(``leaves.py``), and its classes are compared with the library's (``comparison.py``).
"""
