# SPDX-License-Identifier: Apache-2.0
"""Runs: experiments, their schedule, and a run's folder, report and pictures.

May import targets and the packages of lower layers; see docs/explanation/architecture.md.
"""
