# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream SOURCE``: packets to flows to verdicts to sinks, which goes on where it stopped.

From Python, :class:`.pipeline.FlowStream` runs a source (:mod:`.source`), a model
(:class:`.decide.StreamModel`) and sinks (:mod:`.sink`); :class:`.callback.CallbackSink` is a sink
that calls ``write(batch)`` of an object.
"""
