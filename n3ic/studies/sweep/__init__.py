# SPDX-License-Identifier: Apache-2.0
"""Sweeps: networks of many sizes, trained in parallel, and those that are worth their cost."""
