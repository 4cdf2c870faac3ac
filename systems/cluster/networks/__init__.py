# SPDX-License-Identifier: Apache-2.0
"""Networks of integers on a ring: captured from PyTorch, and run as a pipeline of nodes."""
