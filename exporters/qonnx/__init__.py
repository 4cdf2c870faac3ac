# SPDX-License-Identifier: Apache-2.0
"""Target ``qonnx``: a graph of XnorPopcountMatMul and MultiThreshold nodes."""
