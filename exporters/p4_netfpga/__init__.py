# SPDX-License-Identifier: Apache-2.0
"""The target ``p4-netfpga``: P4_16 for SimpleSumeSwitch, with the weights as constants.

It imports the core, the families and the exporter ``p4``.
"""
