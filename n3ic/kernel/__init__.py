# SPDX-License-Identifier: Apache-2.0
"""Fast prediction: the compiled kernel and its fallback in numpy.

May import model and the first floor; docs/explanation/architecture.md has the order.
"""
