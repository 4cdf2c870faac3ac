# SPDX-License-Identifier: Apache-2.0
"""The host behind the card: streaming inference and learning, ``n3ic stream``.

Four packages have their own commands: ``flows`` (packets, meter, model, sinks), ``messages``
(data that arrives in many packets), ``functions`` (processes that share packet buffers) and
``learning`` (second stage, refreshed models, drift). They share ``batch``. May import the
core, the families, the exporters, and the system ``xdp``.
"""
