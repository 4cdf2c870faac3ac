# SPDX-License-Identifier: Apache-2.0
"""Boosted look-up tables for SimpleSumeSwitch, as constants of the program."""
