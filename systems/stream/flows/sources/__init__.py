# SPDX-License-Identifier: Apache-2.0
"""Sources of a stream, a module each; see :class:`n3ic.systems.stream.flows.source.Source`."""
