# SPDX-License-Identifier: Apache-2.0
"""A cluster node in Verilog: task handler and binary layer behind a network port.

It imports the core, ``systems/cluster/`` and the exporter ``netfpga``.
"""
