# SPDX-License-Identifier: Apache-2.0
"""Families of models, one folder each; the core finds them through entry points."""
