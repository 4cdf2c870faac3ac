# SPDX-License-Identifier: Apache-2.0
"""The report of a run as one HTML page."""
