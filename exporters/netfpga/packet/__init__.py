# SPDX-License-Identifier: Apache-2.0
"""The packet path around a core, and a simulated card between two network interfaces."""
