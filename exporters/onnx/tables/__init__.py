# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as ONNX graphs of integer operators."""
