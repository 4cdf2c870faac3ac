# SPDX-License-Identifier: Apache-2.0
"""Integer models, their input bits and their file, on which training and targets meet.

May import the packages of layer 1; see docs/explanation/architecture.md.
"""
