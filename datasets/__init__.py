# SPDX-License-Identifier: Apache-2.0
"""Data sets and their use cases, one folder each; found through entry points."""
