# SPDX-License-Identifier: Apache-2.0
"""``n3ic bench meter``: compares our meters with argus and NFStream."""
