# SPDX-License-Identifier: Apache-2.0
"""Integer networks, their input bits and their file: the narrow waist of the core.

Imports only util, options, plugins and errors; see docs/explanation/architecture.md.
"""
