# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as match-action tables."""
