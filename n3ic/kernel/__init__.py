# SPDX-License-Identifier: Apache-2.0
"""Fast prediction: the compiled kernel and its fallback in numpy.

May import model and the packages of layer 1; see docs/explanation/architecture.md.
"""
