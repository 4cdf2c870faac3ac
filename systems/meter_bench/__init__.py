# SPDX-License-Identifier: Apache-2.0
"""``n3ic bench meter``: our meters beside argus and NFStream. May import the core."""
