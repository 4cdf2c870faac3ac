# SPDX-License-Identifier: Apache-2.0
"""The host target: one C header, one C file, the weights as a blob, and ``bnn-exec``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.host import runner
from n3ic.exporters.host.decode import decode_directory
from n3ic.exporters.host.estimate import estimate, flow_cache, memory_of
from n3ic.exporters.host.flows import FLOW_EXEC
from n3ic.exporters.host.forms import STYLE, form_of
from n3ic.exporters.host.sources import (
    TEMPLATES,
    copy_sources,
    kernel_source,
    readme,
    weights_section,
)
from n3ic.kernel import blob
from n3ic.kernel.library import KernelError, KernelNetwork
from n3ic.model.bits import Words
from n3ic.model.network import BinaryModel, Inference
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import Benchmark, TargetMeter, VerificationDefaults
from n3ic.targets.colocation import (
    CoLocatedNetwork,
    CoLocation,
    colocate,
    over_budget,
    summed_memory,
)
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit, Placement, Problem
from n3ic.targets.figures import Bench, Figure, Report


class HostExporter(Exporter):
    """Self-contained C11 for a host CPU; the paper's ``bnn-exec``."""

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "C11 for a host CPU (AVX-512, AVX2, NEON, portable), with bnn-exec"
    shunts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (STYLE,)
    graph_exporter: ClassVar[str] = "n3ic.exporters.host.graph:EXPORTER"
    # All files that the Makefile builds: they may appear in an export without counting as damage.
    products: ClassVar[tuple[str, ...]] = (
        *("bnn-exec", "flow-exec", "libbnn.a"),
        *(f"{stem}.o" for stem in ("bnn", "bnn_exec", "flow_exec", "domain")),
        *("lines.o", "capture.o", "live.o", "meter.o"),
        "build/*",  # CMake's
    )
    verification: ClassVar[VerificationDefaults] = VerificationDefaults(
        (Option("kernel", "kernel to run: all that the CPU supports, or one by name", "all"),)
    )

    def for_options(self, options: Options) -> Exporter[Any]:
        """The exporter of the form that the options choose."""
        return form_of(self, options)

    def check(self, model: BinaryModel, options: Options) -> Fit:
        """Check the number of layers and the model's size, the only limits; see the base class."""
        limit = int(self.device.limits["layers"])
        problems = []
        if len(model.layers) > limit:
            problems.append(
                Problem(f"{len(model.layers)} layers, the kernel allows {limit}", layer=limit)
            )
        sizes = memory_of(model)
        total = sum(sizes.values())
        memory = next((m for m in self.device.memories if total <= m.bytes), None)
        if memory is None or total > blob.MAX_BYTES:
            largest = min(self.device.memories[-1].bytes, blob.MAX_BYTES)
            problems.append(
                Problem(
                    f"{total:,} bytes of weights, {largest:,} are allowed",
                    memory=self.device.memories[-1].name,
                    missing_bytes=total - largest,
                )
            )
            return Fit(problems=tuple(problems))
        placements = tuple(
            Placement(part, memory.name, size) for part, size in sizes.items() if size
        )
        return Fit(placements, tuple(problems))

    def colocate(self, members: Sequence[CoLocatedNetwork]) -> CoLocation:
        """Co-locate models that run in turn on one core, in the fastest memory that holds all."""
        total = sum(summed_memory(members).values())
        sizes = {m.name: m.bytes for m in self.device.memories}
        memory = next((name for name, size in sizes.items() if total <= size), list(sizes)[-1])
        way = f"one after the other on one core, weights in {memory.upper()}"
        if memory != "l1d":
            way += " (the latency is that of weights in L1D)"
        problems = over_budget(
            {"bytes of main memory": total}, {"bytes of main memory": sizes[memory]}
        )
        return colocate(members, way, sum, memory={memory: total}, problems=problems)

    def write(self, model: BinaryModel, options: Options, out: Path) -> None:
        """Write the C sources, their build files, ``weights.bin`` and the README."""
        weights = blob.dump(model)
        try:
            (out / "weights.bin").write_bytes(weights)
            (out / "bnn.c").write_text(kernel_source() + weights_section(model, weights), "utf-8")
            copy_sources(model, out)
            (out / "README.md").write_text(readme(TEMPLATES, model, size=len(weights)), "utf-8")
        except OSError as error:
            raise ExportError(f"cannot write {out}: {error.strerror or error}") from error

    def run(self, directory: Path, model: BinaryModel, options: Options, words: Words) -> Execution:
        """Compile ``bnn.c`` and run every kernel of this CPU, also on ``weights.bin``."""
        library, compiler = runner.compile_library(directory)
        baked = runner.load(library, None, directory)

        def compute(kernel: str) -> Inference:
            return _trace(baked, words, model, f"bnn.c, kernel {kernel}")

        choice = str(options.get("kernel", "all"))
        done = runner.run_kernels(library, compiler, baked, choice, words, compute)
        # A user may load weights.bin instead of the bytes in bnn.c: both must be the network.
        loaded = runner.load(library, directory / "weights.bin", directory)
        trace = _trace(loaded, words, model, "weights.bin")
        runner.same(done.inference, trace, "bnn.c", "weights.bin")
        return done

    def decode(self, directory: Path, model: BinaryModel, options: Options) -> tuple[Decoded, ...]:
        """Decode ``weights.bin`` and ``bnn.c``; see the base class."""
        return decode_directory(directory, model)

    def encode(
        self,
        directory: Path,
        model: BinaryModel,
        options: Options,
        features: Mapping[str, Any],
    ) -> Words:
        """Pack inputs by ``bnn_encode``; every kernel must give the same words."""
        return runner.encode(directory, model, features)

    @property
    def meter(self) -> TargetMeter:
        """The meter of ``flow-exec``."""
        return FLOW_EXEC

    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Report bytes, operations and estimated time; ``verify`` measures the time."""
        paper = self.device.paper
        size = (directory / "weights.bin").stat().st_size
        is_papers = model.shape == (256, 32, 16, 2)
        e = estimate(model, self.device)
        figures = [
            Figure(f"memory.{part}", count, "byte", "measured", "count of the blob's words")
            for part, count in memory_of(model).items()
        ]
        figures += [
            *flow_cache(model.meter),
            Figure("memory.blob", size, "byte", "measured", "size of weights.bin"),
            Figure(
                "operations",
                e.operations,
                "operation",
                "estimated",
                "count of the AVX-512 kernel's vector operations in one inference",
            ),
            Figure(
                "latency",
                e.latency_ns,
                "ns",
                "estimated",
                e.latency_formula,
                paper["latency_ns"] if is_papers else None,
            ),
            Figure(
                "throughput",
                1e9 / e.interval_ns,
                "inference/s",
                "estimated",
                e.interval_formula,
                paper["throughput"] if is_papers else None,
            ),
        ]
        notes = (
            "Latency and throughput are those of the network alone on one AVX-512 core; "
            "`n3ic verify` and `n3ic bench host` measure them on the machine at hand.",
            "The paper's figures include reading the flows' statistics and writing the results.",
        )
        return Report(tuple(figures), notes)

    @property
    def benchmark(self) -> Benchmark:
        """A measurement beside onnxruntime and others."""
        return Benchmark(self._bench)

    def _bench(self, model: BinaryModel, options: Options) -> Bench:
        """Measure every kernel beside onnxruntime, PyTorch, scikit-learn and numpy.

        If the model carries a meter, ``flow-exec`` is also measured beside ``n3ic predict``.
        """
        from n3ic.exporters.host.bench import bench_host, render
        from n3ic.exporters.host.packet_bench import PACKETS, bench_packets

        result = bench_host(model)
        if model.meter is not None:
            with tempfile.TemporaryDirectory(prefix="n3ic-bench-") as name:
                self.write(model, {}, Path(name))
                rates = bench_packets(model, model.meter, Path(name), PACKETS)
            result = replace(result, packets=rates)
        return render(result)


def _trace(net: KernelNetwork, words: Words, model: BinaryModel, where: str) -> Inference:
    # Check the sizes first: the model determines the sizes of the arrays that the C fills.
    layers = (model.input.n_words, model.output.n_outputs)
    if (net.n_words, net.n_classes) != layers:
        raise VerifyError(f"{where}: the network's shape is not {model.shape_text}")
    if net.hidden_words != sum(-(-layer.n_outputs // 32) for layer in model.hidden):
        raise VerifyError(f"{where}: the hidden layers are not those of {model.shape_text}")
    try:
        return net.trace(words, model)
    except KernelError as error:
        raise VerifyError(f"{where}: {error}") from error


EXPORTER = HostExporter()
