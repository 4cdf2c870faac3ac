# SPDX-License-Identifier: Apache-2.0
"""The export as a block of a hardware project: registers, testbench, packaging."""
