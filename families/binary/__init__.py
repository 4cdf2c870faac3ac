# SPDX-License-Identifier: Apache-2.0
"""Trains binary networks: the binarized MLP, its fold into integers, polishing, prototypes, trees.

The network itself is in ``n3ic/model/``, because it is the core's own family: ``network.py`` and
``layers.py``, the inputs at the thresholds in ``verification_vectors.py``, simplification in
``passes/``. ``family.py`` is the family's interface. ``coverage.py`` measures which weight bits
verification decides.

This package imports the core. The core finds it through entry points only.
"""
