# SPDX-License-Identifier: Apache-2.0
"""Training of binary networks: the binarized MLP, its fold into integers, polishing, other ways.

The network itself is in ``n3ic/model/``, as the core's own family: ``network.py`` and
``layers.py``, the inputs at the thresholds in ``boundary.py``, simplification in ``passes/``. The
family's interface is ``family.py``; which weight bits verification decides is ``coverage.py``.

Imports the core; nothing but entry points leads here.
"""
