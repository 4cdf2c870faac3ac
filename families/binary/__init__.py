# SPDX-License-Identifier: Apache-2.0
"""Training of binary networks: the binarized MLP, its fold into integers, polishing, other ways.

The network itself stands in ``n3ic/model/``, for it is the core's own family: ``network.py`` and
``layers.py``, the inputs at the thresholds in ``boundary.py``, what shortens it in ``passes/``.
What the core asks of any family is ``family.py``; what verification decides is ``coverage.py``.

Imports the core; nothing but entry points leads here.
"""
