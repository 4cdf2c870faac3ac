# SPDX-License-Identifier: Apache-2.0
"""Tools that run and measure the Verilog: simulators, synthesis, place and route."""
