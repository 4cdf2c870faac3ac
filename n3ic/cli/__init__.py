# SPDX-License-Identifier: Apache-2.0
"""The command line ``n3ic``.

May import every other package of the core; see docs/explanation/architecture.md.
"""
