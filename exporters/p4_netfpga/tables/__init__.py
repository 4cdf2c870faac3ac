# SPDX-License-Identifier: Apache-2.0
"""Look-up tables for SimpleSumeSwitch, as constants."""
