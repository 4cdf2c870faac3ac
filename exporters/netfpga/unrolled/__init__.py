# SPDX-License-Identifier: Apache-2.0
"""``--style unrolled``: weights folded into logic, one inference per clock."""
