# SPDX-License-Identifier: Apache-2.0
"""Evaluation on held-out rows: metrics, ROC, calibration, importance of features.

May import data, kernel, model and the packages of layer 1; see docs/explanation/architecture.md.
"""
