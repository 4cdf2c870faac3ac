# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in an XDP program: indices by sums of rows, entries in the network's map value."""
