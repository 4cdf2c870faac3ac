# SPDX-License-Identifier: Apache-2.0
"""Clocks of nodes: those of the targets, and estimates from a device."""

import pytest

from n3ic import plugins
from n3ic.systems.cluster.figures import FOLDER, NODE_FILE, node_figures


@pytest.mark.parametrize(
    "target",
    [t for t in plugins.names("n3ic.exporters") if (FOLDER / t / NODE_FILE).is_file()],
)
def test_a_target_that_describes_its_node_says_how_it_knows(target):
    figures = node_figures(target)
    assert figures.source
    assert figures.bytes > 0
    assert figures.kind in ("measured", "simulated")


def test_a_target_without_a_description_is_estimated_from_its_device():
    figures = node_figures("nfp")
    assert (figures.kind, figures.memory, figures.bytes) == ("estimated", "cls", 65536 - 16384)
    # a word of 32 bits after the other, 62.5 ns each at 800 MHz
    assert (figures.slice_bits, figures.slice_clocks) == (32, 50)
    assert figures.neuron_clocks(384) == 12 * 50
