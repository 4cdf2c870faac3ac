# SPDX-License-Identifier: Apache-2.0
"""The command line ``n3ic``.

May import every other package of the core; docs/explanation/architecture.md has the layers.
"""
