# SPDX-License-Identifier: Apache-2.0
"""The target ``netfpga``: Verilog executors, their packet path, simulation and synthesis.

It imports the core and the families, and no other exporter.
"""
