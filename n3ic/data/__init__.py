# SPDX-License-Identifier: Apache-2.0
"""Tables of flows: files, formats, splits, and the interface of a data set.

May import kernel, model and the first floor; docs/explanation/architecture.md has the order.
"""
