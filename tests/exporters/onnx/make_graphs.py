# SPDX-License-Identifier: Apache-2.0
"""Write the graphs below ``graphs/``, which other tools made of networks, with their versions.

``brevitas-*.onnx`` are of Brevitas' own QONNX exporter, or of its QCDQ exporter, which refuses
weights of one bit (``qcdq``); ``qonnx-*.onnx`` are those after passes of the tool qonnx, such as
FINN and hls4ml run before they read a graph. Each has the tools' versions in its metadata and what
the network answers to 64 inputs beside it.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from brevitas import nn as quantized
from brevitas.export import export_onnx_qcdq, export_qonnx
from brevitas.quant import (
    SignedBinaryActPerTensorConst,
    SignedBinaryWeightPerTensorConst,
    SignedTernaryWeightPerTensorConst,
)
from onnx import helper
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.batchnorm_to_affine import BatchNormToAffine
from qonnx.transformation.fold_constants import FoldConstants
from qonnx.transformation.infer_datatypes import InferDataTypes
from qonnx.transformation.infer_shapes import InferShapes

FOLDER = Path(__file__).parent / "graphs"
WIDTH = 14


class Scaled(SignedBinaryWeightPerTensorConst):  # type: ignore[misc]
    """Weights of +-0.1."""

    scaling_const = 0.1


class Ternary(SignedTernaryWeightPerTensorConst):  # type: ignore[misc]
    """Weights of -0.5, 0 and 0.5."""

    scaling_const = 0.5


class Sign(SignedBinaryActPerTensorConst):  # type: ignore[misc]
    """Activations of +-1."""

    scaling_const = 1.0


def trained(*parts: torch.nn.Module) -> torch.nn.Module:
    """A network whose batch norms have seen some rows."""
    module = torch.nn.Sequential(*parts)
    for _ in range(20):
        module(torch.sign(torch.randn(64, WIDTH)))
    return module.eval()


def networks() -> dict[str, torch.nn.Module]:
    """The networks by name: one-bit and few-bit activations and last layers."""
    nn = quantized
    torch.manual_seed(1)
    return {
        "signs": trained(
            nn.QuantIdentity(act_quant=Sign),
            nn.QuantLinear(WIDTH, 9, bias=False, weight_quant=Scaled),
            torch.nn.BatchNorm1d(9),
            nn.QuantIdentity(act_quant=Sign),
            torch.nn.Dropout(0.2),
            nn.QuantLinear(9, 7, bias=True, weight_quant=Scaled),
            torch.nn.BatchNorm1d(7),
            nn.QuantHardTanh(act_quant=Sign),
            nn.QuantLinear(7, 4, bias=True, weight_quant=Scaled),
        ),
        "few-bits": trained(
            nn.QuantIdentity(act_quant=Sign),
            nn.QuantLinear(WIDTH, 8, bias=False, weight_quant=Scaled),
            torch.nn.BatchNorm1d(8),
            nn.QuantReLU(bit_width=2),
            nn.QuantLinear(8, 3, bias=True, weight_bit_width=3),
        ),
        "qcdq": trained(
            nn.QuantLinear(WIDTH, 8, bias=False, weight_quant=Ternary),
            torch.nn.BatchNorm1d(8),
            nn.QuantReLU(bit_width=2),
            nn.QuantLinear(8, 3, bias=True, weight_bit_width=3),
        ),
    }


def written(name: str, model: Any, answer: Any, made_by: str) -> None:
    """Write a graph with its answers and what made it."""
    rows = np.random.default_rng(0).integers(0, 2, (64, WIDTH))
    scores = answer(np.where(rows, 1.0, -1.0).astype(np.float32))
    facts = {
        "made by": made_by,
        "rows": "".join(map(str, rows.ravel())),
        "classes": "".join(map(str, np.argmax(scores, axis=1))),
    }
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, model.graph):
        del part.metadata_props[:]  # where on its maker's machine the code stood
    for part in (*model.graph.output, *model.graph.initializer):
        del part.metadata_props[:]
    helper.set_model_props(model, facts)
    onnx.save(model, FOLDER / f"{name}.onnx")


def main() -> None:
    """Write all graphs."""
    FOLDER.mkdir(exist_ok=True)
    tools = {t: f"{t} {version(t)}" for t in ("brevitas", "torch", "qonnx", "onnx")}
    for name, module in networks().items():

        def answer(rows: Any, module: torch.nn.Module = module) -> Any:
            with torch.no_grad():
                return module(torch.from_numpy(rows)).numpy()

        with TemporaryDirectory() as folder:
            path = f"{folder}/made.onnx"
            export = export_onnx_qcdq if name == "qcdq" else export_qonnx
            export(module, torch.sign(torch.randn(1, WIDTH)), path)
            made = onnx.load(path)
        written(f"brevitas-{name}", made, answer, f"{tools['brevitas']}, {tools['torch']}")
        if name == "qcdq":
            continue
        passes = (InferShapes, BatchNormToAffine, FoldConstants, InferDataTypes)
        wrapped = ModelWrapper(made)
        for each in passes:
            wrapped = wrapped.transform(each())
        tool_names = ", ".join((*tools.values(), *(p.__name__ for p in passes)))
        written(f"qonnx-{name}", wrapped.model, answer, tool_names)


if __name__ == "__main__":
    sys.exit(main())
