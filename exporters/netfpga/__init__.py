# SPDX-License-Identifier: Apache-2.0
"""NetFPGA-SUME: Verilog executors, their packet wrapper, simulation and synthesis."""
