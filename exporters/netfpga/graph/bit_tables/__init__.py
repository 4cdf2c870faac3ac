# SPDX-License-Identifier: Apache-2.0
"""The cores of sums of look-ups by bits, for the target ``netfpga``."""
