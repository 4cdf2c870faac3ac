# SPDX-License-Identifier: Apache-2.0
"""A firewall by 5-tuple."""
