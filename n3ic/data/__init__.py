# SPDX-License-Identifier: Apache-2.0
"""Tables of flows: files, formats, splits, and the interface of a data set.

May import kernel, model and the packages of layer 1; see docs/explanation/architecture.md.
"""
