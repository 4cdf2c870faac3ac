# SPDX-License-Identifier: Apache-2.0
"""The target ``nfp``: weight blob, C header and micro-C executor for the NFP4000."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.exporters.nfp import blob, placement, runner, sharing
from n3ic.exporters.nfp.decode import decode_directory
from n3ic.exporters.nfp.estimate import calibration, estimate, paper_key
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import UINT32_MAX
from n3ic.model.network import BinaryModel
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.colocation import CoLocatedNetwork, CoLocation, colocate
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit
from n3ic.targets.figures import Figure, Report
from n3ic.targets.identifiers import comment, unique_identifiers
from n3ic.util.templates import render

MODELLED = "modelled syntax, not compiled by the vendor's compiler"


class NfpExporter(Exporter):
    """Micro-C for the Netronome NFP4000, data-parallel or model-parallel."""

    name: ClassVar[str] = "nfp"
    summary: ClassVar[str] = "micro-C and weight blob for the Netronome NFP4000 (Agilio CX)"
    graph_exporter: ClassVar[str] = "n3ic.exporters.nfp.graph.exporter:EXPORTER"
    products: ClassVar[tuple[str, ...]] = ("build/*",)
    shunts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "memory",
            "memory that holds the weights; auto: the fastest that fits",
            "auto",
            choices=("auto", *placement.MEMORIES),
        ),
        Option(
            "mode",
            "data: each thread runs a network; model: a chain of threads runs one; "
            "auto: model if the weights do not fit CLS",
            "auto",
            choices=("auto", "data", "model"),
        ),
        Option(
            "threads",
            "threads in data-parallel mode",
            480,
            minimum=1,
            maximum=480,
            only_with=(("mode", ("auto", "data")),),
        ),
        Option(
            "executors",
            "executors of the chain in model-parallel mode; 0: one per 32 neurons, at most 256",
            0,
            minimum=0,
            maximum=360,
            only_with=(("mode", ("auto", "model")),),
        ),
        Option("state", "memory for a thread's layer bits", "cls", choices=("cls", "lmem")),
        Option(
            "cls-reserve",
            "bytes of CLS reserved for the rest of the firmware",
            16384,
            minimum=0,
            maximum=65536,
        ),
    )

    def check(self, model: BinaryModel, options: Options) -> Fit:
        """Check that weights and threads fit the memories; see the base class."""
        return placement.check(model, self._plan(model, options), self.device)

    def colocate(self, members: Sequence[CoLocatedNetwork]) -> CoLocation:
        """Co-locate models: threads run side by side over the islands, chains take turns."""
        plans = [self._plan(m.model, m.options) for m in members]
        sizes = [blob.build(m.model).size for m in members]
        return side_by_side(members, sizes, plans, self.device)

    def write(self, model: BinaryModel, options: Options, out: Path) -> None:
        """Write the blob, headers, micro-C, Makefile and README."""
        plan = self._plan(model, options)
        built = blob.build(model)
        shutil.copytree(
            self.folder / "micro_c",
            out,
            dirs_exist_ok=True,
            copy_function=shutil.copyfile,
            ignore=shutil.ignore_patterns("n3ic_cuts.h"),  # the network's micro-C searches none
        )
        (out / "weights.bin").write_bytes(built.to_bytes())
        values = self._values(model, plan, built)
        for name in ("n3ic_config.h", "n3ic_weights.h", "README.md"):
            text = render(self.folder / "templates", f"{name}.j2", values)
            (out / name).write_text(text, encoding="ascii")

    def run(self, directory: Path, model: BinaryModel, options: Options, words: Words) -> Execution:
        """Compile the micro-C with the host's compiler and run it on packed inputs."""
        path = runner.compiler()
        answers = _answers(directory, model, "bits", words)
        mode = self._plan(model, options).mode
        return Execution(
            runner.trace(model, answers),
            f"micro-C, {mode}-parallel, on the host ({runner.version(path)}); {MODELLED}",
        )

    def decode(self, directory: Path, model: BinaryModel, options: Options) -> tuple[Decoded, ...]:
        """Decode ``weights.bin`` and ``n3ic_weights.h``; see the base class."""
        return decode_directory(directory, model)

    def encode(
        self,
        directory: Path,
        model: BinaryModel,
        options: Options,
        features: Mapping[str, Any],
    ) -> Words | None:
        """Run the micro-C's input stage on features, converted to the device's 32-bit words."""
        answers = _answers(directory, model, "features", requests(model, features))
        start = 2 + len(model.classes)  # after the class, the margin and the scores
        return np.ascontiguousarray(answers[:, start : start + model.input.n_words])

    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Report memory counted from the artefacts, and estimated latency and throughput."""
        plan, device = self._plan(model, options), self.device
        built = blob.build(model)
        size = (directory / "weights.bin").stat().st_size
        figures = [
            Figure(f"memory.{part}", count, "byte", "measured", "count of the words of weights.bin")
            for part, count in built.sections.items()
        ]
        masked = tuple(layer.mask is not None for layer in model.layers)
        e = estimate(device, model.shape, masked, plan.mode, plan.memory, plan.state, plan.threads)
        room = placement.available(plan, device)

        def paper(kind: str) -> float | None:
            key = paper_key(kind, model.shape, plan.mode, plan.memory, plan.threads)
            return device.paper.get(key)

        paper_latency = paper("latency_us")
        figures += [
            Figure("memory.blob", size, "byte", "measured", "size of weights.bin"),
            Figure(
                "memory.cuts",
                4 * sum(len(field.cuts) for field in model.input.fields),
                "byte",
                "measured",
                "cuts of weights.bin, a word each: the chip reads words",
            ),
            Figure(
                f"memory.{plan.memory}.room",
                room,
                "byte",
                "estimated",
                f"{plan.memory.upper()} less the firmware's reserve and the threads' state "
                "(device.toml)",
            ),
            Figure(
                "memory.state",
                placement.state_bytes(plan, device),
                "byte",
                "estimated",
                f"{plan.state_bytes} bytes a thread, counted from n3ic_serve.h, of the threads "
                f"that share one {plan.state.upper()}",
            ),
            Figure(
                "operations",
                e.words - sum(layer.n_outputs for layer in model.layers),
                "word",
                "measured",
                "count of 32-bit XNOR and popcount operations of one inference"
                + (" (masks count once more)" if model.has_masks else ""),
            ),
            Figure(
                "latency",
                e.latency_us * 1e3,
                "ns",
                "estimated",
                e.latency_formula,
                None if paper_latency is None else paper_latency * 1e3,
            ),
            Figure(
                "throughput",
                e.throughput,
                "inference/s",
                "estimated",
                e.throughput_formula,
                paper("throughput"),
            ),
        ]
        notes = [
            f"The micro-C is {MODELLED}; no such compiler is public. The same source compiles "
            "with gcc through host/nfp_shim.h, and that is what verification runs. Only the "
            "popcount, the signal between micro-engines and the lock differ (n3ic_port.h).",
            f"{plan.mode}-parallel mode, weights in {plan.memory.upper()}, {plan.threads} "
            + ("threads." if plan.mode == "data" else "executors in the chain."),
            "Latency and throughput are estimates, calibrated on the paper's 256-32-16-2 in CLS "
            "at 480 threads. The paper's program reads no thresholds and this one does. The "
            "paper gives 95th percentiles. How far the formula is from each of its figures:",
            *calibration(device),
            "The paper fits about 32k weights in CLS beside what its threads keep there (footnote "
            "13). This export counts what its own threads keep: a layer's packed bits.",
        ]
        cache = device.memory("emem").bytes
        if plan.memory == "emem" and built.size > cache:
            notes.append(
                f"The weights ({built.size} bytes) are larger than the EMEM cache ({cache} "
                "bytes). Reads reach DRAM, whose access time the paper does not give."
            )
        return Report(tuple(figures), tuple(notes))

    def _plan(self, model: BinaryModel, options: Options) -> placement.ThreadPlan:
        """Plan the layout, and check that the options apply to it."""
        plan = placement.plan(model, options, self.device)
        name, mode = ("threads", "data") if plan.mode == "model" else ("executors", "model")
        default = next(o.default for o in self.options if o.name == name)
        if options["mode"] == "auto" and options[name] != default:
            raise UsageError(
                f"--{name} applies only with --mode {mode}; {model.shape_text} is laid out "
                f"{plan.mode}-parallel without it"
            )
        return plan

    def _values(
        self, model: BinaryModel, plan: placement.ThreadPlan, built: blob.Blob
    ) -> dict[str, Any]:
        return {
            **shared_values(model, plan, built.words),
            "layers": len(model.layers),
            "max_words": max(layer.n_words for layer in model.layers),
            # Size of the host program's trace of all hidden layers, in words.
            "hidden_words": runner.hidden_words(model),
            "sections": built.sections,
            "rows": built.rows,
            "strides": built.strides,
            "shapes": [(layer.n_inputs, layer.n_outputs) for layer in model.layers],
            "masked": [layer.mask is not None for layer in model.layers],
            "input_start": built.input_start,
        }


def _answers(directory: Path, model: BinaryModel, what: str, rows: Words) -> NDArray[np.uint32]:
    hidden, built = runner.hidden_words(model), blob.build(model)
    return runner.run_inputs(directory, model, what, rows, hidden, built.explain)


def requests(model: Classifier, features: Mapping[str, Any]) -> Words:
    """Build requests from features: uint32 array of shape ``(rows, features)``."""
    columns = [  # saturated, so that a large value does not wrap to a small one
        np.clip(np.asarray(features[name], dtype=np.int64), 0, UINT32_MAX).astype(np.uint32)
        for name in model.input.features
    ]
    return np.stack(columns, axis=1)


def side_by_side(
    members: Sequence[CoLocatedNetwork],
    sizes: Sequence[int],
    plans: Sequence[placement.ThreadPlan],
    device: Device,
) -> CoLocation:
    """Co-locate networks whose blobs have ``sizes`` bytes."""
    shared = sharing.share([m.model for m in members], sizes, plans, device)
    chained = [plan.mode == "model" for plan in plans]

    def longest(latencies: list[float]) -> float:
        # Threads of different networks run concurrently; networks in the chain take turns.
        return max(*latencies, sum(compress(latencies, chained)))

    return colocate(members, shared.way, longest, memory=shared.memory, problems=shared.problems)


def shared_values(model: Classifier, plan: placement.ThreadPlan, words: Words) -> dict[str, Any]:
    """Template values that every family has."""
    scope = "island" if plan.memory in ("cls", "ctm") else "global"
    lines = [
        "    " + ", ".join(f"0x{word:08x}" for word in words[i : i + 8].tolist())
        for i in range(0, len(words), 8)
    ]

    def named(names: tuple[str, ...], texts: list[str]) -> list[dict[str, str]]:
        return [
            {"identifier": identifier, "comment": comment(text)}
            for identifier, text in zip(unique_identifiers(names), texts, strict=True)
        ]

    units = {f.feature: f.unit for f in model.input.fields}
    features = model.input.features
    return {
        "name": comment(model.name),
        "shape": model.shape_text,
        "digest": model.digest,
        "plan": plan,
        "modelled": MODELLED,
        "placement": f"__declspec(shared scope({scope}) export {plan.memory})",
        "input_bits": model.input.n_bits,
        "input_words": model.input.n_words,
        "classes": named(model.classes, list(model.classes)),
        "features": named(features, [f"{f} {units[f]}".strip() for f in features]),
        "words": len(words),
        "shunt": model.shunt,
        "body": ",\n".join(lines),
    }


EXPORTER = NfpExporter()
