# SPDX-License-Identifier: Apache-2.0
"""Names of a capture's flows as labels for training: TLS and QUIC hellos, and DNS answers.

Names are read on the host, once, to label flows; no feature of a card comes from them. May import
the core's meter and command line.
"""
