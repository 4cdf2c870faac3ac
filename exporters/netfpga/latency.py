# SPDX-License-Identifier: Apache-2.0
"""The clocks of a pipelined core, of any model family."""

from __future__ import annotations

from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel
from n3ic.options import Options


def pipeline_clocks(model: Classifier, options: Options) -> int:
    """Clocks from an input of a pipelined core to its result; 0 for a sequential one.

    So many inferences are in flight while it takes one every clock.
    """
    if options.get("style") == "sequential":
        return 0
    outputs, pipelined = str(options.get("outputs")), int(options.get("pipeline", 0))
    if isinstance(model, BinaryModel):
        from n3ic.exporters.netfpga.unrolled import design as unrolled_design

        return unrolled_design.latency(model, pipeline=pipelined, outputs=outputs)
    from n3ic.model.family import graph_of
    from n3ic.model.graph.bit_tables import bit_tables

    if bit_tables(graph_of(model)) is None:
        from n3ic.exporters.netfpga.graph.pipeline import pipeline
        from n3ic.exporters.netfpga.graph.verilog import latency

        return latency(pipeline(model, graph_of(model)))
    from n3ic.exporters.netfpga.graph.bit_tables.unrolled import design

    return design(model, outputs, pipelined).plan.depth
