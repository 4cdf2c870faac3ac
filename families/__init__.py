# SPDX-License-Identifier: Apache-2.0
"""Families of models, one folder each; found through entry points."""
