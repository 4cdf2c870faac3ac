# SPDX-License-Identifier: Apache-2.0
"""Metering: packets to flows, by one specification for training and for every data plane.

May import data, kernel, model and the first floor; docs/explanation/architecture.md has the order.
"""
