# SPDX-License-Identifier: Apache-2.0
"""The packet path around a core, and a card of it between two network interfaces."""
