# SPDX-License-Identifier: Apache-2.0
"""The learning loop through the kernel, to watch."""
