# SPDX-License-Identifier: Apache-2.0
"""Boosted look-up tables as match-action tables for the target ``p4``."""
