# SPDX-License-Identifier: Apache-2.0
"""A go-back-N transport."""
