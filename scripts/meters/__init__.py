# SPDX-License-Identifier: Apache-2.0
"""Compares the standard meter with argus and nDPI on the flows of captures."""
