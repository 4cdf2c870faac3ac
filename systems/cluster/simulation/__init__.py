# SPDX-License-Identifier: Apache-2.0
"""A ring of many nodes under the kernels of neural networks, packet by packet or by trains."""
