# SPDX-License-Identifier: Apache-2.0
"""Training: recipes, the choice of input bits, the training loop, baselines.

Each family trains its models in a folder of its own. May import evaluation, data, model, util,
options, plugins and errors; see docs/explanation/architecture.md.
"""
