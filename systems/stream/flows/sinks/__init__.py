# SPDX-License-Identifier: Apache-2.0
"""The sinks of a stream, one per module; see :class:`n3ic.systems.stream.flows.sink.StreamSink`."""
