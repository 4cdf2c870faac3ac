# SPDX-License-Identifier: Apache-2.0
"""Training of binary networks: the binarized MLP, its fold into integers, polishing, other ways.

The network itself stands in ``n3ic/model/``, for it is the core's own family: ``network.py`` and
``layers.py``, the inputs that verification runs in ``boundary.py`` and ``coverage.py``, what
shortens it in ``passes/``, and what the core asks of the family in ``binary.py``.

Imports the core; nothing but entry points leads here.
"""
