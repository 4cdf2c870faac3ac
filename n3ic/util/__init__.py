# SPDX-License-Identifier: Apache-2.0
"""Helpers for files, caches, names, text, pictures and processes that every package uses.

May import options, plugins and errors; see docs/explanation/architecture.md.
"""
