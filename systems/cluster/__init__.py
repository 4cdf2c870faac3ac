# SPDX-License-Identifier: Apache-2.0
"""One model over many cards: a ring of nodes, each of which computes where its data lies."""
