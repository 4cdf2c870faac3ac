# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as micro-C and a blob of their entries for the NFP4000."""
