# SPDX-License-Identifier: Apache-2.0
"""One model over many cards: a ring of nodes that each compute on the data they hold.

It imports only the core; its folder ``netfpga`` also imports that exporter.
"""
