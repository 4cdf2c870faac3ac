# SPDX-License-Identifier: Apache-2.0
"""What the host learns from a stream: a second stage, refreshed models, and drift.

May import ``flows``, ``functions`` and ``batch`` of ``stream``, the core, the families and
``systems/xdp``.
"""
