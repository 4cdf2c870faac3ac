# SPDX-License-Identifier: Apache-2.0
"""Target ``onnx``: exports models as graphs of standard operators, and imports binary networks.

It may import ``n3ic`` and ``n3ic.families``.
"""
