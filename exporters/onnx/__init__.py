# SPDX-License-Identifier: Apache-2.0
"""Target ``onnx``: a graph of standard operators, and the way back from one."""
