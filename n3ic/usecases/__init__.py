# SPDX-License-Identifier: Apache-2.0
"""Use cases: what is trained on which data by default.

May import runs, targets and the packages of lower layers; see docs/explanation/architecture.md.
"""
