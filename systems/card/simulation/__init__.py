# SPDX-License-Identifier: Apache-2.0
"""Simulation of a card under load: tenants, bursts and failures, and each policy's shares.

It imports the core and ``systems/card/``.
"""
