# SPDX-License-Identifier: Apache-2.0
"""Systems: several models or machines, or programs on live interfaces, built from exported models.

A system may import ``n3ic/``, ``families/``, ``exporters/``, and the systems that a table of
docs/explanation/architecture.md names.
"""
