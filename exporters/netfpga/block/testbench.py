# SPDX-License-Identifier: Apache-2.0
"""Writes a testbench that checks itself: inputs, what the network computes of them, and Verilog."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from n3ic.exporters.netfpga.core import CorePorts, framed
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import family
from n3ic.model.simplified import unchanged
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
TOP = "n3ic_tb"
COUNT = 128  # a power of two: the index of a vector is its tag


def write(model: Classifier, core: CorePorts, out: Path, *, scores: bool) -> None:
    """Write ``tb/`` below an export directory.

    Args:
        model: the network.
        core: the core's description.
        out: the export directory.
        scores: whether the core gives scores and margin; they are 0 otherwise.
    """
    offered = family(model.family).vectors(unchanged(model), COUNT, 0)
    words = offered[np.linspace(0, len(offered) - 1, COUNT).astype(int)]
    results, width = _results(model, core, words, scores=scores)
    values = {
        "core": core,
        "shape": model.shape_text,
        "count": COUNT,
        "count_w": COUNT.bit_length() - 1,
        "result_w": width,
    }
    inputs = [int.from_bytes(row.astype("<u4").tobytes(), "little") for row in words]
    folder = out / "tb"
    folder.mkdir(exist_ok=True)
    (folder / "vectors.mem").write_text(_hexadecimal(inputs, core.n_in))
    (folder / "expected.mem").write_text(_hexadecimal(results, width))
    (folder / f"{TOP}.v").write_text(framed(render(FOLDER, f"{TOP}.v.j2", values)), "utf-8")


def _results(
    model: Classifier, core: CorePorts, words: Words, *, scores: bool
) -> tuple[list[int], int]:
    """What the core must answer to each input, as one number, and the number's bits."""
    trace, mask = model.infer(words), (1 << core.score_w) - 1
    answers = []
    for row in range(len(words)):
        number = int(trace.classes[row])
        if core.shunts:
            number |= int(int(trace.margins[row]) < model.shunt) << core.class_w
        for value in (trace.margins[row], *trace.scores[row][::-1]):
            number = number << core.score_w | (int(value) & mask if scores else 0)
        answers.append(number)
    return answers, core.shunts + core.class_w + (1 + core.n_classes) * core.score_w


def _hexadecimal(numbers: list[int], width: int) -> str:
    """One line for each number, as ``$readmemh`` reads it."""
    return "".join(f"{number:0{-(-width // 4)}x}\n" for number in numbers)
