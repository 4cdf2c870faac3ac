# SPDX-License-Identifier: Apache-2.0
"""A node of a cluster in Verilog: task handler and binary layer behind a network port."""
