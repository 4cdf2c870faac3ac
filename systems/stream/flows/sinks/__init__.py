# SPDX-License-Identifier: Apache-2.0
"""Sinks of a stream, a module each; see :class:`n3ic.systems.stream.flows.sink.StreamSink`."""
