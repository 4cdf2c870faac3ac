# SPDX-License-Identifier: Apache-2.0
"""The host behind the card: streaming inference and learning, ``n3ic stream``.

Four packages, each with its own commands: ``flows`` (packets, meter, model, sinks), ``messages``
(data that arrives in many packets), ``functions`` (processes that share packet buffers) and
``learning`` (second stage, refreshed models, drift). Only ``batch`` is common to them. They may
import the core, the families and the exporters, and of other systems what is named there.
``demo`` shows them together.
"""
