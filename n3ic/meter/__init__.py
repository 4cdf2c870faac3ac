# SPDX-License-Identifier: Apache-2.0
"""Turns packets into flows, by one specification for training and for every data plane.

May import data, kernel, model and the packages of layer 1; see docs/explanation/architecture.md.
"""
