# SPDX-License-Identifier: Apache-2.0
"""The command line: `n3ic`.

May import every other room; docs/explanation/architecture.md has the order.
"""
