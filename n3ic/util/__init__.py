# SPDX-License-Identifier: Apache-2.0
"""Files, names, caches and text that every package uses.

May import options, plugins and errors; docs/explanation/architecture.md has the order.
"""
