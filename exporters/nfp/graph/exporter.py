# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations in micro-C: threads that each run a whole model."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.nfp import exporter as binary
from n3ic.exporters.nfp import placement, runner
from n3ic.exporters.nfp.decode import read_words
from n3ic.exporters.nfp.estimate import threads_estimate
from n3ic.exporters.nfp.exporter import MODELLED, NfpExporter
from n3ic.exporters.nfp.graph import blob, counts
from n3ic.exporters.nfp.graph.decode import decode_words
from n3ic.exporters.nfp.graph.program import MAX_SLOTS, WRITTEN, GraphProgram, compiled
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.colocation import CoLocatedNetwork, CoLocation
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.operations import place, unwritten
from n3ic.util.templates import render

# Files of the micro-C that only binary networks need.
_NEURONS = ("n3ic_neuron.h", "n3ic_input.h", "n3ic_data.h", "n3ic_chain.h")


class NfpGraphExporter(Exporter[Classifier]):
    """Micro-C for the Netronome NFP4000, in which each thread computes a model's operations."""

    name: ClassVar[str] = "nfp"
    summary: ClassVar[str] = "micro-C and weight blob of a graph for the Netronome NFP4000"
    family: ClassVar[str] = ""
    products: ClassVar[tuple[str, ...]] = NfpExporter.products
    shunts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = tuple(
        option for option in NfpExporter.options if option.name != "executors"
    )

    @cached_property
    def device(self) -> Device:
        """The device of binary networks: the same card."""
        return Device.from_toml(_binary_folder() / "device.toml")

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check that the blob and the threads' state fit the memories; see the base class."""
        if problems := _unsupported(model, options):
            return Fit(problems=problems)
        plan, built = self._plan(model, options), blob.build(model)
        placements = placement.placed(model, built.sections, plan, self.device)
        return Fit(placements, _problems(model, built, plan, self.device))

    def colocate(self, members: Sequence[CoLocatedNetwork]) -> CoLocation:
        """Co-locate models: their threads run side by side, spread over the islands."""
        plans = [self._plan(m.model, m.options) for m in members]
        sizes = [blob.build(m.model).size for m in members]
        return binary.side_by_side(members, sizes, plans, self.device)

    def write(self, model: Classifier, options: Options, out: Path) -> None:
        """Write the blob, headers, micro-C, Makefile and README."""
        plan, built = self._plan(model, options), blob.build(model)
        shared = _binary_folder()
        for folder in (shared / "micro_c", self.folder / "micro_c"):
            shutil.copytree(
                folder,
                out,
                dirs_exist_ok=True,
                copy_function=shutil.copyfile,
                ignore=shutil.ignore_patterns(*_NEURONS),
            )
        (out / "weights.bin").write_bytes(built.to_bytes())
        values = {
            **binary.shared_values(model, plan, built.words),
            "values": built.program.slots,
            "value_words": built.value_words,
            "sections": built.sections,
            "starts": built.starts,
        }
        folders = (self.folder / "templates", shared / "templates")
        for name in ("n3ic_config.h", "n3ic_weights.h", "README.md"):
            text = render(folders, f"{name}.j2", values)
            (out / name).write_text(text, encoding="ascii")

    def run(self, directory: Path, model: Classifier, options: Options, words: Words) -> Execution:
        """Compile the micro-C with the host's compiler and run it on packed inputs."""
        path = runner.compiler()
        answers = _answers(directory, model, "bits", words)
        return Execution(
            runner.answered(model, answers),
            f"micro-C, data-parallel, on the host ({runner.version(path)}); {MODELLED}",
        )

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode ``weights.bin`` and ``n3ic_weights.h``, and compare them with the model."""
        return tuple(
            compared(model, decode_words(name, words, model))
            for name, words in read_words(directory).items()
        )

    def encode(
        self, directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
    ) -> Words:
        """Run the micro-C's input stage on features, converted to the device's 32-bit words."""
        answers = _answers(directory, model, "features", binary.requests(model, features))
        start = 2 + len(model.classes)  # after the class, the margin and the scores
        return np.ascontiguousarray(answers[:, start : start + model.input.n_words])

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report memory counted from the artefacts, and estimated latency and throughput."""
        plan, built = self._plan(model, options), blob.build(model)
        size = (directory / "weights.bin").stat().st_size
        figures = [
            Figure(f"memory.{part}", count, "byte", "measured", "count of the words of weights.bin")
            for part, count in built.sections.items()
        ]
        figures += [
            Figure("memory.blob", size, "byte", "measured", "size of weights.bin"),
            Figure(
                f"memory.{plan.memory}.room",
                placement.available(plan, self.device),
                "byte",
                "estimated",
                f"{plan.memory.upper()} less the firmware's reserve and the threads' state "
                "(device.toml)",
            ),
            Figure(
                "memory.state",
                placement.state_bytes(plan, self.device),
                "byte",
                "estimated",
                f"{plan.state_bytes} bytes a thread, counted from n3ic_serve.h and n3ic_graph.h, "
                f"of the threads that share one {plan.state.upper()}",
            ),
            *_counted(built.program),
        ]
        figures += [
            *self._speed(model, plan, counts.from_bits(model, built), ""),
            *self._speed(model, plan, counts.from_features(model, built), "features."),
        ]
        return Report(
            tuple(figures),
            (
                f"The micro-C is {MODELLED}; no such compiler is public. The same source compiles "
                "with gcc through host/nfp_shim.h, and that is what verification runs.",
                f"data-parallel mode, weights in {plan.memory.upper()}, {plan.threads} threads.",
                "Latency and throughput are estimates for a row that takes the longest way down "
                "each tree: from packed bits, as those of a binary network, and from features "
                "(features.latency). The cycles of a word are those fitted to the paper's binary "
                "network; the paper measured no trees."
                + (" A product takes more of them." if built.program.wide else ""),
            ),
        )

    def _speed(
        self, model: Classifier, plan: placement.ThreadPlan, done: counts.Accesses, name: str
    ) -> list[Figure]:
        mean = done.accesses / done.words
        e = threads_estimate(self.device, done.words, mean, plan.memory, plan.state, plan.threads)
        return [
            Figure(f"{name}latency", e.latency_us * 1e3, "ns", "estimated", e.latency_formula),
            Figure(
                f"{name}throughput", e.throughput, "inference/s", "estimated", e.throughput_formula
            ),
        ]

    def _plan(self, model: Classifier, options: Options) -> placement.ThreadPlan:
        """Plan the threads; ``auto`` takes the fastest memory that fits."""
        chosen = str(options["memory"])
        names = placement.MEMORIES if chosen == "auto" else (chosen,)
        built = blob.build(model)
        # Beside classes and features: input bits, a word of scratch memory, and values.
        words = model.input.n_words + 1 + built.value_words * built.program.slots
        plans = [placement.data_plan(model, 0, options, name) for name in names]
        plans = [replace(plan, state_bytes=plan.state_bytes + 4 * words) for plan in plans]
        fitting = (p for p in plans if built.size <= placement.available(p, self.device))
        return next(fitting, plans[-1])


def _counted(program: GraphProgram) -> list[Figure]:
    """Figures of the steps, and of the trees if there are any."""
    blocks = program.blocks
    figures = [
        Figure("operations", len(program.steps), "step", "measured", "count of the micro-C's steps")
    ]
    if blocks:
        trees, nodes = sum(len(b.depths) for b in blocks), sum(len(b.words) for b in blocks)
        what = "trees whose leaves are constants, descended node by node"
        figures.append(Figure("trees", trees, "tree", "measured", what))
        figures.append(
            Figure("nodes", nodes, "node", "measured", "of those trees, leaves included")
        )
    return figures


def _unsupported(model: Classifier, options: Options) -> tuple[Problem, ...]:
    """List what the micro-C cannot do, whatever the sizes of the memories."""
    graph = graph_of(model)
    if refused := unwritten(graph, WRITTEN):
        return refused
    problems = []
    if options["mode"] == "model":
        text = f"{place(graph, graph.scores[-1])}: a chain of threads shares the neurons of a layer"
        problems.append(
            Problem(f"{text}, and a graph has none: each thread runs a whole model (--mode data)")
        )
    if (slots := compiled(graph).slots) > MAX_SLOTS:
        text = f"{place(graph, graph.scores[-1])}: {slots:,} values are live at once"
        problems.append(Problem(f"{text}, a step names {MAX_SLOTS:,}"))
    return tuple(problems)


def _problems(
    model: Classifier, built: blob.GraphBlob, plan: placement.ThreadPlan, device: Device
) -> tuple[Problem, ...]:
    """List the problems of a blob or threads' state that does not fit its memory."""
    missing = built.size - placement.available(plan, device)
    state = placement.state_problems(plan, device, "bits and values")
    if missing <= 0:
        return state
    parts = {name: size for name, size in built.sections.items() if size}
    largest = max(parts, key=lambda name: parts[name])
    graph = graph_of(model)
    short = Problem(
        f"{place(graph, graph.scores[-1])}: {len(graph.steps):,} operations take {built.size:,} "
        f"bytes, {parts[largest]:,} of them {largest}; {missing:,} more than "
        f"{plan.memory.upper()} has beside the {plan.state_bytes} bytes of state of each thread",
        memory=plan.memory,
        missing_bytes=missing,
    )
    return (short, *state)


def _answers(directory: Path, model: Classifier, what: str, rows: Words) -> NDArray[np.uint32]:
    return runner.run_inputs(directory, model, what, rows, 0, blob.build(model).explain)


def _binary_folder() -> Path:
    return Path(binary.__file__).resolve().parent


EXPORTER = NfpGraphExporter()
