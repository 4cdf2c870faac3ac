# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream SOURCE``: packets to flows to verdicts to sinks; it can resume where it stopped.

From Python, :class:`.pipeline.FlowStream` runs a source (:mod:`.source`), a model
(:class:`.decide.StreamModel`) and sinks (:mod:`.sink`). :class:`.callback.CallbackSink` is a sink
that calls the ``write(batch)`` of any object. May import the core, the exporters and
``systems/xdp``.
"""
