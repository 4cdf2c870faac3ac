# SPDX-License-Identifier: Apache-2.0
"""Training of binary networks: the binarized MLP, its fold into integers, polishing, other ways.

The network itself is in ``n3ic/model/``, as the core's own family: ``network.py`` and
``layers.py``, the inputs of verification in ``boundary.py`` and ``coverage.py``, simplification in
``passes/``, and the family's interface in ``binary.py``.

Imports the core; nothing but entry points leads here.
"""
