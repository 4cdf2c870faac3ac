# SPDX-License-Identifier: Apache-2.0
"""The narrow waist: integer networks, their input bits and their file.

May import the first floor alone: util, options, plugins, errors. The order is told by
docs/explanation/architecture.md.
"""
