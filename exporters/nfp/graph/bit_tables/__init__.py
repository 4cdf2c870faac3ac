# SPDX-License-Identifier: Apache-2.0
"""The kernel of sums of look-ups by bits, for the target ``nfp``."""
