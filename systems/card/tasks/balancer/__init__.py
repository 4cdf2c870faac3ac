# SPDX-License-Identifier: Apache-2.0
"""A load balancer by hash."""
