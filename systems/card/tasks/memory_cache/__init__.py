# SPDX-License-Identifier: Apache-2.0
"""A key-value cache in on-board memory."""
