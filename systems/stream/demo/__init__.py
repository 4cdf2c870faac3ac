# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream demo``: the loop through the kernel, and images to PyTorch, to be watched."""
