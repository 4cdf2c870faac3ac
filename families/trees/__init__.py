# SPDX-License-Identifier: Apache-2.0
"""Decision trees in integers: a family of models.

A tree asks input bits on the way from its root to a leaf; the score of a class is the sum of the
leaves that an input reaches, plus a bias. One tree, forests and boosted trees have this form.

``family.py`` is the family's interface to the core; an entry point names it. The model is in
``network.py``, its exact simplification in ``simplify.py``, trees as arrays in ``arrays.py``.
``readers/`` turns fitted models of other libraries into models of this family.
"""
