# SPDX-License-Identifier: Apache-2.0
"""Training: recipes, the choice of input bits, the training loop, baselines.

Each family trains its models in a folder of its own. May import evaluation, data, model and the
first floor; docs/explanation/architecture.md has the order.
"""
