# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks in C11: the network's tables, and one source that reads them.

Both model families share the interface ``bnn.h``, so ``bnn-exec``, ``flow-exec`` and a user's own
programs work with either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.host import runner
from n3ic.exporters.host.estimate import flow_cache
from n3ic.exporters.host.exporter import HostExporter
from n3ic.exporters.host.flows import run_flow_exec
from n3ic.exporters.host.sources import copy_sources, readme
from n3ic.exporters.host.spn.program import LEAST_ROWS, SpnProgram, program
from n3ic.families.spn.arithmetic import LogArithmetic
from n3ic.families.spn.network import SpnModel
from n3ic.model.bits import Words
from n3ic.model.classifier import Inference
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter, MeteredCapture
from n3ic.targets.device import Device, Fit, Placement, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.identifiers import c_string
from n3ic.util.templates import render

TEMPLATES = Path(__file__).resolve().parent / "templates"
MAX_SCRATCH = 1 << 20  # bytes of stack that one call may use
_A_LINE = 12


class HostSpnExporter(Exporter[SpnModel]):
    """Self-contained C11 that computes a sum-product network, with ``bnn-exec``."""

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "C11 for a host CPU (AVX-512, AVX2, portable), with bnn-exec"
    family: ClassVar[str] = SpnModel.family
    shunts: ClassVar[bool] = True
    products: ClassVar[tuple[str, ...]] = HostExporter.products
    verify_options: ClassVar[tuple[Option, ...]] = HostExporter.verify_options

    @cached_property
    def device(self) -> Device:
        """The device of binary networks: the same host."""
        return Device.from_toml(Path(runner.__file__).with_name("device.toml"))

    def check(self, model: SpnModel, options: Options) -> Fit:
        """Check that a block's values fit the stack, and where the tables lie."""
        made = program(model)
        scratch = made.scratch_bytes(LEAST_ROWS)
        problems = []
        if scratch > MAX_SCRATCH:
            text = f"{made.slots:,} values live at once take {scratch:,} bytes of the stack"
            problems.append(Problem(f"{text}, {MAX_SCRATCH:,} are allowed", missing_bytes=scratch))
        sizes = _memory(model, made)
        total = sum(sizes.values())
        memory = next((m for m in self.device.memories if total <= m.bytes), None)
        if memory is None:
            problems.append(Problem(f"{total:,} bytes of tables and steps", memory="dram"))
            return Fit(problems=tuple(problems))
        placements = (Placement(part, memory.name, size) for part, size in sizes.items())
        return Fit(tuple(placements), tuple(problems))

    def write(self, model: SpnModel, options: Options, out: Path) -> None:
        """Write the C sources, their build files and the README."""
        try:
            (out / "bnn.c").write_text(_source(model), "utf-8")
            copy_sources(model, out)
            log = isinstance(model.arithmetic, LogArithmetic)
            (out / "README.md").write_text(readme(TEMPLATES, model, log=log), "utf-8")
        except OSError as error:
            raise ExportError(f"cannot write {out}: {error.strerror or error}") from error

    def run(self, directory: Path, model: SpnModel, options: Options, words: Words) -> Execution:
        """Compile ``bnn.c`` and run every kernel of this CPU, in blocks and row by row."""
        library, compiler = runner.compiled(directory)
        net = runner.load(library, None, directory)
        if (net.n_words, net.n_classes) != (model.input.n_words, len(model.classes)):
            raise VerifyError(f"bnn.c: the network's shape is not {model.shape_text}")

        def compute(kernel: str) -> Inference:
            found = net.classify(words)
            # The C has two loops, for full blocks and for one row: both must agree.
            for row in range(min(len(words), LEAST_ROWS)):
                part = slice(row, row + 1)
                alone = net.classify(words[part])
                runner.same(_part(found, part), alone, f"a block of kernel {kernel}", "row alone")
            return found

        wanted = str(options.get("kernel", "all"))
        done = runner.run_kernels(library, compiler, net, wanted, words, compute)
        fastest = min(done.figures, key=lambda figure: figure.value)
        rate = 1e9 / fastest.value
        speed = Figure("throughput", rate, "inference/s", "measured", fastest.source)
        return replace(done, figures=(*done.figures, speed))

    def encode(
        self, directory: Path, model: SpnModel, options: Options, features: Mapping[str, Any]
    ) -> Words:
        """Pack inputs by ``bnn_encode``; see :func:`.runner.encode`."""
        return runner.encode(directory, model, features)

    def meter(
        self, directory: Path, model: SpnModel, options: Options, capture: Path
    ) -> MeteredCapture | None:
        """Run ``flow-exec`` on a capture; return None if the model has no meter."""
        return None if model.meter is None else run_flow_exec(directory, model, capture)

    def report(self, model: SpnModel, options: Options, directory: Path) -> Report:
        """Report counted bytes and steps; verification measures the time of a flow."""
        made = program(model)
        figures = [
            Figure(f"memory.{part}", size, "byte", "measured", "count of the C's integers")
            for part, size in _memory(model, made).items()
        ]
        figures += flow_cache(model.meter)
        figures.append(
            Figure("operations", len(made.steps), "step", "measured", "count of the C's steps")
        )
        note = (
            f"Rows are computed {made.block} at a time; a row alone takes longer. `n3ic verify` "
            "measures the time on one core, from packed bits to classes, margins and scores."
        )
        return Report(tuple(figures), (note,))


def _part(found: Inference, rows: slice) -> Inference:
    verdicts = None if found.verdicts is None else found.verdicts[rows]
    return Inference(
        found.scores[rows], found.classes[rows], found.margins[rows], verdicts=verdicts
    )


def _memory(model: SpnModel, made: SpnProgram) -> dict[str, int]:
    """Bytes of the C's constants, by what they hold."""
    log_add = model.arithmetic.table if isinstance(model.arithmetic, LogArithmetic) else ()
    return {
        "tables": made.value_bytes * len(made.tables),
        # One entry more: 0, for every difference beyond the table.
        "log_add": made.value_bytes * (len(log_add) + 1) if len(log_add) else 0,
        "steps": (16 + made.value_bytes) * len(made.steps),  # four words and one value
        "cuts": model.input_bytes,
    }


def _source(model: SpnModel) -> str:
    """The file ``bnn.c``."""
    made = program(model)
    spec = model.input
    parts = []
    for i, (start, field) in enumerate(zip(spec.offsets, spec.fields, strict=True)):
        # A field may cross words: a part is the bits that it has in one of them.
        for word in range(start // 32, (start + field.width - 1) // 32 + 1):
            low, high = max(start - 32 * word, 0), min(start + field.width - 32 * word, 32)
            parts.append({"field": i, "word": word, "mask": (1 << high) - (1 << low)})
    arithmetic = model.arithmetic
    values = {
        "shape": model.shape_text,
        "digest": model.digest,
        "inputs": spec.n_bits,
        "words": spec.n_words,
        "shunt": model.shunt,
        "fraction": arithmetic.fraction,
        "log_add": arithmetic.table.tolist() if isinstance(arithmetic, LogArithmetic) else [],
        "block": made.block,
        "slots": made.slots,
        "fields": [
            {"name": c_string(f.feature), "scale": repr(f.scale), "first": start, "width": f.width}
            for start, f in zip(spec.offsets, spec.fields, strict=True)
        ],
        "cuts": [f"{cut}u" for f in spec.fields for cut in f.cuts],
        "classes": [c_string(name) for name in model.classes],
        "parts": parts,
        "program": made.steps,
        "tables": made.tables,
        "scores": made.scores,
    }
    text = render(TEMPLATES, "spn_tables.c.j2", values, {"lines": _lines})
    return text + (TEMPLATES / "spn.c").read_text("utf-8")


def _lines(numbers: Sequence[Any]) -> str:
    """Numbers as lines of C."""
    rows = (numbers[i : i + _A_LINE] for i in range(0, len(numbers), _A_LINE))
    return "\n".join(f"    {', '.join(map(str, row))}," for row in rows)
