# SPDX-License-Identifier: Apache-2.0
"""The sources of a stream, one per module: :class:`n3ic.systems.stream.flows.source.Source`."""
