# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks as ONNX graphs of integer operators."""
