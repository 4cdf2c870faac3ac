# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in an XDP program: sums of rows give indices, the map value has the entries."""
