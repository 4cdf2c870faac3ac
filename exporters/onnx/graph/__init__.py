# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations as ONNX graphs of integer operators."""
