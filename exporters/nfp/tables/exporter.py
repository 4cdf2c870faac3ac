# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in micro-C: threads that add up entries of a blob, one load per table."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.nfp import exporter as binary
from n3ic.exporters.nfp import placement, runner
from n3ic.exporters.nfp.decode import read_words
from n3ic.exporters.nfp.estimate import threads_estimate
from n3ic.exporters.nfp.exporter import MODELLED, NfpExporter
from n3ic.exporters.nfp.tables import blob, counts
from n3ic.exporters.nfp.tables.decode import decode_words
from n3ic.families.tables.network import TablesModel
from n3ic.families.tables.operations import packing
from n3ic.families.tables.readback import compared
from n3ic.model.bits import Words, pack
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.colocation import CoLocatedNetwork, CoLocation
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.util.templates import render

# Files of the micro-C that only binary networks need.
_NEURONS = ("n3ic_neuron.h", "n3ic_input.h", "n3ic_data.h", "n3ic_chain.h")


class NfpTablesExporter(Exporter[TablesModel]):
    """Micro-C for the Netronome NFP4000, in which each thread adds up the entries of a flow."""

    name: ClassVar[str] = "nfp"
    summary: ClassVar[str] = "micro-C and weight blob of look-up tables for the Netronome NFP4000"
    family: ClassVar[str] = TablesModel.family
    products: ClassVar[tuple[str, ...]] = NfpExporter.products
    shunts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = tuple(
        option for option in NfpExporter.options if option.name != "executors"
    )

    @cached_property
    def device(self) -> Device:
        """The device of binary networks: the same card."""
        return Device.from_toml(_binary_folder() / "device.toml")

    def check(self, model: TablesModel, options: Options) -> Fit:
        """Check that the blob and the threads' state fit the memories; see the base class."""
        if problems := _unsupported(model, options):
            return Fit(problems=problems)
        plan = self._plan(model, options)
        built = blob.build(model)
        placements = placement.placed(model, built.sections, plan, self.device)
        return Fit(placements, _problems(model, built, plan, self.device))

    def colocate(self, members: Sequence[CoLocatedNetwork]) -> CoLocation:
        """Co-locate models: their threads run side by side, spread over the islands."""
        models = [cast(TablesModel, m.model) for m in members]
        plans = [self._plan(m, of.options) for m, of in zip(models, members, strict=True)]
        sizes = [blob.build(m).size for m in models]
        return binary.side_by_side(members, sizes, plans, self.device)

    def write(self, model: TablesModel, options: Options, out: Path) -> None:
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
            "tables": len(model.tables),
            "sums": len(model.bias),
            "index_words": built.index_words,
            "max_words": _state_words(model),
            "sections": built.sections,
            "starts": built.starts,
        }
        folders = (self.folder / "templates", shared / "templates")
        for name in ("n3ic_config.h", "n3ic_weights.h", "README.md"):
            text = render(folders, f"{name}.j2", values)
            (out / name).write_text(text, encoding="ascii")

    def run(self, directory: Path, model: TablesModel, options: Options, words: Words) -> Execution:
        """Compile the micro-C with the host's compiler and run it on packed inputs."""
        path = runner.compiler()
        answers = _answers(directory, model, "bits", words)
        return Execution(
            runner.answered(model, answers),
            f"micro-C, data-parallel, on the host ({runner.version(path)}); {MODELLED}",
        )

    def decode(self, directory: Path, model: TablesModel, options: Options) -> tuple[Decoded, ...]:
        """Decode ``weights.bin`` and ``n3ic_weights.h``, and compare them with the model."""
        return tuple(
            compared(model, decode_words(name, words, model))
            for name, words in read_words(directory).items()
        )

    def encode(
        self, directory: Path, model: TablesModel, options: Options, features: Mapping[str, Any]
    ) -> Words:
        """Run the micro-C on features, and read the input bits from the indices that it computes.

        The micro-C computes no input bits: it maps features directly to indices, each bit of which
        is an input bit. Input bits that no table reads are taken from the model.

        Returns:
            Packed inputs, uint32 array of shape ``(rows, n_words)``.

        Raises:
            VerifyError: two indices disagree on an input bit, or the scores are not the model's.
        """
        answers = _answers(directory, model, "features", binary.requests(model, features))
        start = 2 + len(model.classes) + model.input.n_words
        bits = np.array(model.input.encode(features))
        assigned = np.zeros(model.input.n_bits, dtype=np.bool_)
        for table, index in zip(model.tables, _indices(model, answers[:, start:]).T, strict=True):
            for j, bit in enumerate(table.bits):
                values = (index >> j & 1).astype(np.bool_)
                if assigned[bit] and (bits[:, bit] != values).any():
                    raise VerifyError(f"input stage: two indices disagree on input bit {bit}")
                assigned[bit], bits[:, bit] = True, values
        words = pack(bits)
        if (runner.answered(model, answers).scores != model.scores(words)).any():
            raise VerifyError("input stage: features give other scores than the indices say")
        return words

    def report(self, model: TablesModel, options: Options, directory: Path) -> Report:
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
                "memory.cuts",
                4 * sum(len(part.cuts) for part in blob.index_parts(model)),
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
                f"{plan.state_bytes} bytes a thread, counted from n3ic_serve.h, of the threads "
                f"that share one {plan.state.upper()}",
            ),
            Figure(
                "lookups",
                built.row_words,
                "load",
                "measured",
                f"count of the words of entries of {len(model.tables)} tables",
            ),
        ]
        for name, way in (("", counts.from_bits), ("features.", counts.from_features)):
            done = way(model, built)
            e = threads_estimate(
                self.device,
                done.words,
                done.accesses / done.words,
                plan.memory,
                plan.state,
                plan.threads,
            )
            figures += [
                Figure(f"{name}latency", e.latency_us * 1e3, "ns", "estimated", e.latency_formula),
                Figure(
                    f"{name}throughput",
                    e.throughput,
                    "inference/s",
                    "estimated",
                    e.throughput_formula,
                ),
            ]
        return Report(
            tuple(figures),
            (
                f"The micro-C is {MODELLED}; no such compiler is public. The same source compiles "
                "with gcc through host/nfp_shim.h, and that is what verification runs.",
                f"data-parallel mode, entries in {plan.memory.upper()}, {plan.threads} threads.",
                "Latency and throughput are estimates: from packed bits, as those of a binary "
                "network, and from features (features.latency), the shorter way, which makes no "
                "input bits. The cycles of a word are those fitted to the paper's binary network; "
                "the paper measured no look-up tables.",
            ),
        )

    def _plan(self, model: TablesModel, options: Options) -> placement.ThreadPlan:
        """Plan the threads; ``auto`` takes the fastest memory that fits."""
        chosen = str(options["memory"])
        names = placement.MEMORIES if chosen == "auto" else (chosen,)
        words, size = _state_words(model), blob.build(model).size
        plans = [placement.data_plan(model, words, options, name) for name in names]
        fitting = (p for p in plans if size <= placement.available(p, self.device))
        return next(fitting, plans[-1])


def _unsupported(model: TablesModel, options: Options) -> tuple[Problem, ...]:
    """List what the micro-C cannot do, whatever the sizes of the memories."""
    problems = []
    if options["mode"] == "model":
        problems.append(
            Problem(
                "a chain of threads shares the neurons of a layer, and look-up tables have no "
                "layers: each thread runs a whole model (--mode data)"
            )
        )
    if len(model.bias) > blob.MAX_SUMS:
        problems.append(
            Problem(
                f"{len(model.bias)} classes: a word of 32 bits names the classes whose scores a "
                f"table changes, so {blob.MAX_SUMS} classes fit"
            )
        )
    return tuple(problems)


def _problems(
    model: TablesModel, built: blob.TablesBlob, plan: placement.ThreadPlan, device: Device
) -> tuple[Problem, ...]:
    """List the problems of a blob or threads' state that does not fit its memory."""
    missing = built.size - placement.available(plan, device)
    state = placement.state_problems(plan, device, "bits and indices")
    if missing <= 0:
        return state
    short = Problem(
        f"{len(model.tables)} tables, their indices and the input stage take {built.size} bytes, "
        f"{missing} more than {plan.memory.upper()} has beside the {plan.state_bytes} bytes of "
        "state of each thread",
        memory=plan.memory,
        missing_bytes=missing,
    )
    return (short, *state)


def _state_words(model: TablesModel) -> int:
    """Return the words of a thread's state: the packed inputs, or the indices that replace them."""
    return max(model.input.n_words, packing(model, 32).n_words)


def _answers(directory: Path, model: TablesModel, what: str, rows: Words) -> NDArray[np.uint32]:
    built = blob.build(model)
    return runner.run_inputs(directory, model, what, rows, built.index_words, built.explain)


def _indices(model: TablesModel, words: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the index of each table: uint8 array of shape ``(rows, tables)``."""
    how = packing(model, 32)
    columns = [
        words[:, word] >> np.uint32(shift) & np.uint32(mask)
        for word, shift, mask in zip(how.word, how.shift, how.mask, strict=True)
    ]
    return np.stack(columns, axis=1).astype(np.uint8)


def _binary_folder() -> Path:
    return Path(binary.__file__).resolve().parent


EXPORTER = NfpTablesExporter()
