# SPDX-License-Identifier: Apache-2.0
"""Packet tasks beside a card's networks: one folder each, found by its name."""
