# SPDX-License-Identifier: Apache-2.0
"""Training: recipes, the choice of input bits, the training loop, baselines.

How a family's models are trained stands in the folder of the family. May import evaluation, data,
model and the first floor; docs/explanation/architecture.md has the order.
"""
