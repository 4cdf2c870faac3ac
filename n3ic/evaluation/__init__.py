# SPDX-License-Identifier: Apache-2.0
"""Figures of merit of a classifier.

May import data, kernel, model and the first floor; docs/explanation/architecture.md has the order.
"""
