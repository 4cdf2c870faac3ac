# SPDX-License-Identifier: Apache-2.0
"""What the host learns from a stream: a second stage, refreshed models, and drift."""
