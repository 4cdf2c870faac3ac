# SPDX-License-Identifier: Apache-2.0
"""Resources of a cluster's card, measured by synthesis."""

from __future__ import annotations

from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.tools.synth import synthesise_sources
from n3ic.systems.cluster.netfpga.image import NodeSize
from n3ic.systems.cluster.netfpga.sources import TOP, node_sources


def node_resources(size: NodeSize | None = None) -> Resources:
    """Measure the resources of ``n3ic_cluster_node``, flattened, by ``synth_xilinx -family xc7``.

    Args:
        size: sizes of the memories; None for the default ones.

    Raises:
        MissingDependencyError: Yosys is not installed.
        VerifyError: Yosys fails.
    """
    return synthesise_sources(node_sources(), TOP, (size or NodeSize()).parameters)
