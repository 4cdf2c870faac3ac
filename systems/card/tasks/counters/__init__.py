# SPDX-License-Identifier: Apache-2.0
"""Counters of packets and bytes."""
