# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations in micro-C: threads that each run a whole model."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.nfp import exporter as binary
from n3ic.exporters.nfp import placement, runner
from n3ic.exporters.nfp.decode import read_words
from n3ic.exporters.nfp.estimate import Accesses, threads_estimate
from n3ic.exporters.nfp.exporter import MODELLED, NfpExporter
from n3ic.exporters.nfp.graph.bit_tables.kernel import MicroCBitTables, takes
from n3ic.exporters.nfp.graph.program import WRITTEN
from n3ic.exporters.nfp.graph.sections import SectionedWords
from n3ic.exporters.nfp.graph.steps import MicroCSteps
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.bit_tables import bit_tables
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.colocation import CoLocatedNetwork, CoLocation
from n3ic.targets.decoded_graphs import DecodedGraph, compared
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.operations import place, unwritten
from n3ic.util.templates import render

# Files of the micro-C that only binary networks need.
_NEURONS = ("n3ic_neuron.h", "n3ic_input.h", "n3ic_data.h", "n3ic_chain.h")


class MicroCKernel(Protocol):
    """Micro-C that computes a model's graph.

    Attributes:
        name: what it computes, in words.
        state: what a thread keeps, in words.
        source: the file of micro-C that is its own.
        held: what the words mostly hold, in words.
        folder: has its micro-C and its templates.
    """

    name: ClassVar[str]
    state: ClassVar[str]
    source: ClassVar[str]
    held: ClassVar[str]
    folder: ClassVar[Path]

    @property
    def built(self) -> SectionedWords:
        """The words of ``weights.bin``."""

    @property
    def state_words(self) -> int:
        """Words of a thread's state beside classes and features."""

    @property
    def hidden_words(self) -> int:
        """Words of intermediate results in an answer."""

    @property
    def cuts(self) -> int:
        """Number of cuts in the words."""

    @property
    def size_text(self) -> str:
        """What takes how many bytes, in words."""

    @property
    def estimate_note(self) -> str:
        """What latency and throughput are estimates of, in words."""

    def problems(self) -> tuple[Problem, ...]:
        """What it does not take, whatever the sizes of the memories."""

    def values(self) -> dict[str, Any]:
        """Values for its templates."""

    def from_bits(self) -> Accesses:
        """Count what an inference of packed input bits reads."""

    def from_features(self) -> Accesses:
        """Count what an inference of features reads."""

    def decoded(self, artefact: str, words: Words) -> DecodedGraph:
        """Decode the graph in the words of a weights file."""

    def encoded(self, answers: NDArray[np.uint32], features: Mapping[str, Any]) -> Words:
        """The packed input bits that the micro-C's answers to features tell."""

    def figures(self) -> list[Figure]:
        """What it reports beside bytes and speed."""


@lru_cache(maxsize=4)  # an export asks for the same kernel several times
def kernel_of(model: Classifier) -> MicroCKernel:
    """The kernel for a model: for look-up tables their own, else the steps of its graph."""
    tables = bit_tables(graph_of(model))
    if tables is None or not takes(model, tables):
        return MicroCSteps(model)
    return MicroCBitTables(model, tables)


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
        """Check that the words and the threads' state fit the memories; see the base class."""
        if problems := _unsupported(model, options):
            return Fit(problems=problems)
        kernel, plan = kernel_of(model), self._plan(model, options)
        placements = placement.placed(model, kernel.built.sections, plan, self.device)
        return Fit(placements, _problems(kernel, plan, self.device))

    def colocate(self, members: Sequence[CoLocatedNetwork]) -> CoLocation:
        """Co-locate models: their threads run side by side, spread over the islands."""
        plans = [self._plan(m.model, m.options) for m in members]
        sizes = [kernel_of(m.model).built.size for m in members]
        return binary.side_by_side(members, sizes, plans, self.device)

    def write(self, model: Classifier, options: Options, out: Path) -> None:
        """Write the words, headers, micro-C, Makefile and README."""
        kernel, plan = kernel_of(model), self._plan(model, options)
        shared, built = _binary_folder(), kernel.built
        for folder in (shared / "micro_c", kernel.folder / "micro_c"):
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
            **kernel.values(),
            "sections": built.sections,
            "starts": built.starts,
        }
        folders = (kernel.folder / "templates", shared / "templates")
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
            compared(model, kernel_of(model).decoded(name, words))
            for name, words in read_words(directory).items()
        )

    def encode(
        self, directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
    ) -> Words:
        """Run the micro-C on features, converted to the device's 32-bit words."""
        answers = _answers(directory, model, "features", binary.requests(model, features))
        return kernel_of(model).encoded(answers, features)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report memory counted from the artefacts, and estimated latency and throughput."""
        kernel, plan = kernel_of(model), self._plan(model, options)
        size = (directory / "weights.bin").stat().st_size
        figures = [
            Figure(f"memory.{part}", count, "byte", "measured", "count of the words of weights.bin")
            for part, count in kernel.built.sections.items()
        ]
        figures += [
            Figure("memory.blob", size, "byte", "measured", "size of weights.bin"),
            Figure(
                "memory.cuts",
                4 * kernel.cuts,
                "byte",
                "measured",
                "cuts of weights.bin, a word each: the chip reads words",
            ),
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
                f"{plan.state_bytes} bytes a thread, counted from n3ic_serve.h and "
                f"{kernel.source}, of the threads that share one {plan.state.upper()}",
            ),
            *kernel.figures(),
            *self._speed(plan, kernel.from_bits(), ""),
            *self._speed(plan, kernel.from_features(), "features."),
        ]
        return Report(
            tuple(figures),
            (
                f"The micro-C is {MODELLED}; no such compiler is public. The same source compiles "
                "with gcc through host/nfp_shim.h, and that is what verification runs.",
                f"The micro-C computes {kernel.name} in data-parallel mode, {kernel.held} in "
                f"{plan.memory.upper()}, {plan.threads} threads.",
                kernel.estimate_note,
            ),
        )

    def _speed(self, plan: placement.ThreadPlan, done: Accesses, name: str) -> list[Figure]:
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
        kernel = kernel_of(model)
        plans = [placement.data_plan(model, 0, options, name) for name in names]
        more = 4 * kernel.state_words
        plans = [replace(plan, state_bytes=plan.state_bytes + more) for plan in plans]
        size = kernel.built.size
        fitting = (p for p in plans if size <= placement.available(p, self.device))
        return next(fitting, plans[-1])


def _unsupported(model: Classifier, options: Options) -> tuple[Problem, ...]:
    """List what the micro-C cannot do, whatever the sizes of the memories."""
    graph = graph_of(model)
    if refused := unwritten(graph, WRITTEN):
        return refused
    kernel = kernel_of(model)
    chain = (
        Problem(
            f"{place(graph, graph.scores[-1])}: a chain of threads shares the neurons of a layer, "
            f"and {kernel.name} have no layers: each thread runs a whole model (--mode data)"
        ),
    )
    return (*(chain if options["mode"] == "model" else ()), *kernel.problems())


def _problems(
    kernel: MicroCKernel, plan: placement.ThreadPlan, device: Device
) -> tuple[Problem, ...]:
    """List the problems of words or threads' state that do not fit their memory."""
    missing = kernel.built.size - placement.available(plan, device)
    state = placement.state_problems(plan, device, kernel.state)
    if missing <= 0:
        return state
    short = Problem(
        f"{kernel.size_text}; {missing:,} more than {plan.memory.upper()} has beside the "
        f"{plan.state_bytes} bytes of state of each thread",
        memory=plan.memory,
        missing_bytes=missing,
    )
    return (short, *state)


def _answers(directory: Path, model: Classifier, what: str, rows: Words) -> NDArray[np.uint32]:
    kernel = kernel_of(model)
    return runner.run_inputs(
        directory, model, what, rows, kernel.hidden_words, kernel.built.explain
    )


def _binary_folder() -> Path:
    return Path(binary.__file__).resolve().parent


EXPORTER = NfpGraphExporter()
