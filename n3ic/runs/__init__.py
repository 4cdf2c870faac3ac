# SPDX-License-Identifier: Apache-2.0
"""Runs: experiments, their schedule, their folder, report and pictures.

May import targets and what stands below; docs/explanation/architecture.md has the order.
"""
