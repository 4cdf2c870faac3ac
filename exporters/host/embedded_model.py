# SPDX-License-Identifier: Apache-2.0
"""The base class of exporters that compile the network into the C: how they write and run it.

All families share the interface ``bnn.h``, so ``bnn-exec``, ``flow-exec`` and a user's own programs
work with each of them.
"""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.host import runner
from n3ic.exporters.host.estimate import flow_cache
from n3ic.exporters.host.exporter import HostExporter
from n3ic.exporters.host.flows import FLOW_EXEC
from n3ic.exporters.host.forms import form_of
from n3ic.exporters.host.sources import TEMPLATES, copy_sources
from n3ic.model.bits import Words
from n3ic.model.classifier import Inference
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter, ModelT
from n3ic.targets.capabilities import Benchmark, TargetMeter, VerificationDefaults
from n3ic.targets.device import Device, Fit, Placement, Problem
from n3ic.targets.figures import Bench, Figure

ALONE = 16  # rows that also run one at a time


class EmbeddedModelExporter(Exporter[ModelT]):
    """Self-contained C11 with a network compiled in, and ``bnn-exec``."""

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "C11 for a host CPU (AVX-512, AVX2, portable), with bnn-exec"
    shunts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = HostExporter.options
    products: ClassVar[tuple[str, ...]] = HostExporter.products
    verification: ClassVar[VerificationDefaults] = HostExporter.verification

    @cached_property
    def device(self) -> Device:
        """The device of binary networks: the same host."""
        return Device.from_toml(Path(runner.__file__).with_name("device.toml"))

    def for_options(self, options: Options) -> Exporter[Any]:
        """The exporter of the form that the options choose."""
        return form_of(self, options)

    @abstractmethod
    def source(self, model: ModelT) -> str:
        """Write the network's own part of ``bnn.c``: its constants, and the code for them."""

    @abstractmethod
    def readme(self, model: ModelT) -> str:
        """Write the README of an export."""

    @abstractmethod
    def memory(self, model: ModelT) -> dict[str, int]:
        """Count the bytes of the C's constants, by what they hold."""

    def memory_figures(self, model: ModelT) -> list[Figure]:
        """Report the bytes of the C's constants, and of a meter's flow cache."""
        own = (
            Figure(f"memory.{part}", size, "byte", "measured", "count of the C's integers")
            for part, size in self.memory(model).items()
        )
        return [*own, *flow_cache(model.meter)]

    def check(self, model: ModelT, options: Options) -> Fit:
        """Find the memory where the constants lie."""
        sizes = self.memory(model)
        total = sum(sizes.values())
        memory = next((m for m in self.device.memories if total <= m.bytes), None)
        if memory is None:
            problem = Problem(f"{total:,} bytes of tables and steps", memory="dram")
            return Fit(problems=(problem,))
        return Fit(tuple(Placement(part, memory.name, size) for part, size in sizes.items()))

    def write(self, model: ModelT, options: Options, out: Path) -> None:
        """Write the C sources, their build files and the README."""
        calls = (TEMPLATES / "compiled_in_calls.c").read_text("utf-8")
        try:
            (out / "bnn.c").write_text(self.source(model) + calls, "utf-8")
            copy_sources(model, out)
            (out / "README.md").write_text(self.readme(model), "utf-8")
        except OSError as error:
            raise ExportError(f"cannot write {out}: {error.strerror or error}") from error

    def run(self, directory: Path, model: ModelT, options: Options, words: Words) -> Execution:
        """Compile ``bnn.c`` and run every kernel of this CPU, in blocks and row by row."""
        library, compiler = runner.compile_library(directory)
        net = runner.load(library, None, directory)
        if (net.n_words, net.n_classes) != (model.input.n_words, len(model.classes)):
            raise VerifyError(f"bnn.c: the network's shape is not {model.shape_text}")

        def compute(kernel: str) -> Inference:
            inference = net.classify(words)
            # The C has one loop for full blocks and one for a single row: both must agree.
            for row in range(min(len(words), ALONE)):
                part = slice(row, row + 1)
                alone = net.classify(words[part])
                runner.same(
                    _part(inference, part), alone, f"a block of kernel {kernel}", "row alone"
                )
            return inference

        choice = str(options.get("kernel", "all"))
        done = runner.run_kernels(library, compiler, net, choice, words, compute)
        fastest = min(done.figures, key=lambda figure: figure.value)
        rate = 1e9 / fastest.value
        speed = Figure("throughput", rate, "inference/s", "measured", fastest.source)
        return replace(done, figures=(*done.figures, speed))

    def encode(
        self, directory: Path, model: ModelT, options: Options, features: Mapping[str, Any]
    ) -> Words:
        """Pack inputs by ``bnn_encode``; see :func:`.runner.encode`."""
        return runner.encode(directory, model, features)

    def references(self, model: ModelT) -> dict[str, Callable[[Words], Any]]:
        """What computes the scores of packed inputs in Python, by name, for the benchmark."""
        return {"numpy (the reference)": model.scores}

    @property
    def benchmark(self) -> Benchmark:
        """A measurement of every kernel beside Python."""
        return Benchmark(self._bench)

    def _bench(self, model: ModelT, options: Options) -> Bench:
        from n3ic.exporters.host.bench import bench_compiled_in, render

        with tempfile.TemporaryDirectory(prefix="n3ic-bench-") as name:
            self.write(model, options, Path(name))
            return render(bench_compiled_in(model, Path(name), self.references(model)))

    @property
    def meter(self) -> TargetMeter:
        """The meter of ``flow-exec``."""
        return FLOW_EXEC


def _part(inference: Inference, rows: slice) -> Inference:
    verdicts = None if inference.verdicts is None else inference.verdicts[rows]
    return Inference(
        inference.scores[rows], inference.classes[rows], inference.margins[rows], verdicts=verdicts
    )
