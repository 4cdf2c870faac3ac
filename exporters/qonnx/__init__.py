# SPDX-License-Identifier: Apache-2.0
"""Target ``qonnx``: a graph of XnorPopcountMatMul and MultiThreshold nodes, or of bipolar ones.

It may import ``n3ic``, ``n3ic.families`` and the target ``onnx``.
"""
