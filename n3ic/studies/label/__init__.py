# SPDX-License-Identifier: Apache-2.0
"""Labels the flows of a capture by name, for training: from TLS and QUIC hellos and DNS answers.

Names are read once, on the host, to label flows. No feature that a card computes depends on them.
"""
