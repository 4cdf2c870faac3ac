# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants in one NetFPGA image: their networks behind a credit scheduler.

It imports the core, ``systems/card/`` and the exporter ``netfpga``.
"""
