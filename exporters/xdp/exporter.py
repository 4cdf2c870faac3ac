# SPDX-License-Identifier: Apache-2.0
"""The target ``xdp``: meter, network and verdict as programs of the Linux kernel."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from n3ic.errors import ExportError, MissingDependencyError, UsageError, VerifyError
from n3ic.exporters.xdp import exported, source
from n3ic.exporters.xdp.answer_program import AnswerProgram
from n3ic.exporters.xdp.decode import decode_directory
from n3ic.exporters.xdp.libbpf import BpfError, VerifierError
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.exporters.xdp.network.values import layout, value_bytes
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier, Inference
from n3ic.model.meter_spec import MeterSpec
from n3ic.model.network import BinaryModel
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import Benchmark, MeteredCapture, TargetMeter
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit, Placement, Problem
from n3ic.targets.figures import Bench, Figure, Report
from n3ic.targets.identifiers import comment
from n3ic.targets.packets import PacketLayout
from n3ic.util.templates import render

_TAKEN = (0x0800, 0x86DD, 0x8100, 0x88A8, 0x9100)


class XdpExporter(Exporter):
    """C for the kernel: a metering program, and one that answers inference packets."""

    name: ClassVar[str] = "xdp"
    summary: ClassVar[str] = "meter, network and verdict in the Linux kernel (XDP, restricted C)"
    products: ClassVar[tuple[str, ...]] = (
        *("*/*.o", "*/n3ic_*.skel.h"),
        *("daemon/n3icd", "shunted/shunted", "n3icd.tar.gz"),
    )
    shunts: ClassVar[bool] = True
    graph_exporter: ClassVar[str] = "n3ic.exporters.xdp.graph.exporter:EXPORTER"
    simplifies: ClassVar[bool] = False  # `n3ic xdp update` swaps in networks of the trained shape
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "windows",
            "windows over recent flows: one ring for all CPUs under a lock, or one ring per CPU",
            "shared",
            choices=("shared", "per-cpu"),
        ),
        Option(
            "table",
            "flow table: buckets, which decide a flow before they evict it, or the kernel's LRU "
            "hash, which drops it undecided",
            "buckets",
            choices=source.TABLES,
        ),
        Option(
            "ethertype", "EtherType of inference packets", 0x2323, minimum=0x600, maximum=0xFFFF
        ),
    )

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check that network and windows are within the verifier's limits; see the base class."""
        problems, placements = [], []
        for folder, structure, failure in _structures(model):
            if structure is None:
                problems.append(Problem(f"{folder}: {failure}"))
            else:
                size = layout(structure).bytes
                placements.append(Placement(f"{folder} network", "map", size))
        limit = int(self.device.limits[self.input_limit(model)])
        if model.input.n_bits > limit:
            text = f"{model.input.n_bits:,} input bits, an inference packet has room for {limit:,}"
            problems.append(Problem(text, layer=0))
        problems += _window_problems(model.meter, self.device.limits) if model.meter else ()
        memory = self.device.memory("map")
        for placed in placements:
            if placed.bytes > memory.bytes:
                missing = placed.bytes - memory.bytes
                text = f"{placed.part}: {placed.bytes:,} bytes, a map's value has {memory.bytes:,}"
                problems.append(Problem(text, memory="map", missing_bytes=missing))
        return Fit(tuple(placements), tuple(problems))

    def input_limit(self, model: Classifier) -> str:
        """The name of the device's limit of an inference packet's input bits."""
        return "input_bits"

    def write(self, model: Classifier, options: Options, out: Path) -> None:
        """Write the programs' sources, the networks' map values, ``Makefile`` and README."""
        packets = packet_layout(model, options)
        if packets.ethertype in _TAKEN:
            raise UsageError(f"--ethertype {packets.ethertype:#06x} is taken: choose another one")
        structure = structure_of([model], bits=True)
        files = source.answer_program(structure, packets)
        exported.write_program(out / "answer", files, value_bytes(structure, model))
        shared = options["windows"] == "shared"
        if model.meter is not None:
            from n3ic.exporters.xdp import metering

            metering.write(model, options, out)
        templates = self.folder / "templates"
        (out / "Makefile").write_bytes((templates / "Makefile").read_bytes())
        values = {
            "shape": model.shape_text,
            "digest": model.digest,
            "meter": model.meter and comment(str(model.meter)),
            "windows": "the flows of all CPUs" if shared else "the flows that a CPU decided itself",
            "packets": packets,
            "classes": model.classes,
        }
        text = render(templates, "README.md.j2", values)
        (out / "README.md").write_text(text, encoding="utf-8", newline="\n")

    def run(self, directory: Path, model: Classifier, options: Options, words: Words) -> Execution:
        """Run the answering program on the inputs, and replay traffic through the meter.

        If the kernel does not run programs for this process, ``network.h`` is compiled for the host
        and run there, and the result says so.
        """
        try:
            return _run_in_kernel(directory, model, options, words)
        except VerifierError as error:
            raise VerifyError(str(error)) from error
        except (MissingDependencyError, BpfError) as error:
            verdicts = exported.on_host(
                directory / "answer", model, exported.bit_columns(model, words)
            )
            inference = Inference(
                verdicts.scores,
                verdicts.classes.astype(np.int64),
                verdicts.margins.astype(np.int32),
                verdicts=verdicts.verdicts.astype(np.int64),
            )
            text = f"network.h compiled for this host; the kernel ran nothing: {error}"
            return Execution(inference, text)

    def encode(
        self,
        directory: Path,
        model: Classifier,
        options: Options,
        features: Mapping[str, Any],
    ) -> Words | None:
        """Encode inputs by the rows that the metering program selects; None without a meter."""
        if model.meter is None:
            return None
        from n3ic.exporters.xdp import metering

        inference, words = metering.encode(directory, model, features)
        other = exported.on_host(directory / "answer", model, exported.bit_columns(model, words))
        wrong = np.flatnonzero((inference.scores != other.scores).any(axis=1))
        if len(wrong):
            i = int(wrong[0])
            raise VerifyError(
                f"row {i}: scores {inference.scores[i].tolist()} from features, "
                f"{other.scores[i].tolist()} from its bits"
            )
        return words

    @property
    def meter(self) -> TargetMeter:
        """The metering program, which captures are replayed through in test runs."""
        # The kernel or a bucket chooses the flow to evict, not the oldest.
        return TargetMeter(_metered, links=(LINK_ETHERNET,), evicts=False)

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the map values; see the base class."""
        return decode_directory(directory, cast("BinaryModel", model))

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report map bytes and estimated instructions; ``verify`` measures the program itself."""
        figures = []
        for folder, bits in (("answer", True), ("meter", False)):
            if not (directory / folder).is_dir():
                continue
            structure = structure_of([model], bits=bits)
            size = (directory / folder / exported.VALUE).stat().st_size
            source = f"size of {folder}/{exported.VALUE}"
            figures += [
                Figure(f"memory.{folder}.network", size, "byte", "measured", source),
                Figure(
                    f"instructions.{folder}.network",
                    structure.instructions,
                    "instruction",
                    "estimated",
                    "counted by the C's steps; `n3ic verify` measures the program",
                ),
            ]
        if model.meter is not None:
            from n3ic.exporters.xdp import metering

            figures += [
                Figure(
                    "memory.cuts",  # the other program takes bits
                    layout(structure_of([model])).cut_bytes,
                    "byte",
                    "measured",
                    "words, lanes and tables of meter/network.bin that stand for cuts, for speed",
                ),
                *metering.memory_figures(model.meter, options),
            ]
        notes = (
            "Speed is measured by `n3ic bench xdp`, as differences to a program that only parses.",
        )
        return Report(tuple(figures), notes)

    @property
    def benchmark(self) -> Benchmark:
        """What networks and the meter add to a packet, in this machine's kernel."""
        return Benchmark(_bench)


def _metered(directory: Path, model: Classifier, options: Options, capture: Path) -> MeteredCapture:
    from n3ic.exporters.xdp import metering

    return metering.meter_capture(directory, model, options, capture)


def _bench(model: Classifier, options: Options) -> Bench:
    from n3ic.exporters.xdp.bench import bench_xdp, render

    return render(bench_xdp(model))


def packet_layout(model: Classifier, options: Options) -> PacketLayout:
    """Return the layout of the inference packets that a model's program answers."""
    ethertype = int(options["ethertype"])
    return PacketLayout(model.input.n_bits, len(model.classes), "both", "", ethertype, 0)


def _structures(model: Classifier) -> Iterator[tuple[str, Structure | None, str]]:
    """Yield each program's folder, and its network's structure or why it has none."""
    for folder, bits in (("answer", True), *((("meter", False),) if model.meter else ())):
        try:
            yield folder, structure_of([model], bits=bits), ""
        except ExportError as error:
            yield folder, None, str(error)


def window_checks(spec: MeterSpec, limits: Mapping[str, float]) -> int:
    """Return the comparisons of windows that the verifier follows."""
    ring = min(int(limits["window_flows"]), max((w.flows for w in spec.windows), default=0))
    return len(spec.windows) * ring


def _window_problems(spec: MeterSpec, limits: Mapping[str, float]) -> Iterator[Problem]:
    """Yield problems of windows over recent flows that exceed the verifier's limits."""
    room, most = int(limits["window_flows"]), int(limits["window_checks"])
    for window in spec.windows:
        if window.flows > room:
            text = f"window {window.name!r} is over {window.flows:,} flows, at most {room:,}"
            yield Problem(text)
    ring = min(room, max((w.flows for w in spec.windows), default=0))
    if window_checks(spec, limits) > most:
        text = f"{len(spec.windows)} windows, the largest over {ring:,} flows"
        yield Problem(f"{text}: their product is more than {most:,}, which the verifier follows")


def _run_in_kernel(directory: Path, model: Classifier, options: Options, words: Words) -> Execution:
    place, packets = directory / "answer", packet_layout(model, options)
    image = source.compile_program(exported.read_program(place), source.ANSWER)
    figures = []
    with AnswerProgram(image, "answer.o", packets) as program:
        program.set_model(0, exported.read_value(place))
        inference = program.ask(words)
        figures += exported.program_figures("answer", program.program)
    text = f"BPF_PROG_TEST_RUN on Linux {platform.release()}"
    if model.meter is not None:
        from n3ic.exporters.xdp import metering

        count, measured = metering.replay_traffic(directory / "meter", model, options)
        figures += measured
        text += f", {count:,} packets through the meter"
    return Execution(inference, text, tuple(figures))


EXPORTER = XdpExporter()
