# SPDX-License-Identifier: Apache-2.0
"""Use cases: what is trained on which data by default.

May import runs, targets and what stands below; docs/explanation/architecture.md has the order.
"""
