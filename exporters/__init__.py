# SPDX-License-Identifier: Apache-2.0
"""Targets, one folder each; found through entry points."""
