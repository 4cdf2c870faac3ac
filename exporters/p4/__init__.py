# SPDX-License-Identifier: Apache-2.0
"""The target ``p4``: P4_16 for bmv2's v1model, with the weights in tables.

It imports the core and the families, and no other exporter.
"""
