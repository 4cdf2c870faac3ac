#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sizes beside m2cgen's, conifer's and da4ml's output, for models of equal accuracy: one table.

    # no dependencies of n3ic
    pip install --no-deps --target peers m2cgen==0.10.0 conifer==1.11 da4ml==0.6.0 quantizers==1.2.2
    apt-get install clang ghdl
    PYTHONPATH=peers python scripts/peers.py --data UNSW_NB15_testing-set.csv

Every model is the smallest of a grid that is right on a given share of validation rows. Test rows
of the same split are used once, for the figure in the table.

- **C**: ``n3ic export --target host --style plain`` and m2cgen's C, with the same clang and the
  same flags: bytes of code and constants. Both read features.
- **FPGA**: sites and registers by the same Yosys and the same flow. conifer's VHDL becomes Verilog
  by GHDL; da4ml writes Verilog. A forest reads features, so n3ic's comparisons with cuts count,
  too. da4ml's network reads the input bits of n3ic's tables, so only cores are compared.

hls4ml's and conifer's C++ for high-level synthesis become logic in Vitis or Vivado alone, so they
have no figures here. da4ml is what hls4ml calls for its strategy ``distributed_arithmetic``.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import n3ic
from n3ic.cli.recipe_options import recipe_overrides
from n3ic.exporters.host.firmware.runner import PROCESSORS, SMALL, loaded_bytes, sizes
from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.tools import synth
from n3ic.model.classifier import Classifier
from n3ic.plugins import load
from n3ic.runs.experiment import TrainingResult, train_prepared
from n3ic.runs.preparation import Experiment, prepare
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.training_rows import Prepared
from n3ic.util.markdown import table

TABLES = (16, 20, 24, 28, 33, 40, 52)  # boosted tables of five bits that are tried
DEPTHS, ROUNDS = (3, 4, 5), 80  # of boosted trees
NEURONS, WEIGHT_BITS, SUM_BITS = (16, 24, 32), 4, 4  # of a network's hidden layer
WIDTH, INTEGER = 18, 8  # conifer's own choice of a number: ap_fixed<18,8>
FEATURE_BITS = WIDTH - 1  # of a feature without sign
SCALE = 2.0 ** (INTEGER - WIDTH)
Ints = NDArray[np.int64]
Layers = list[tuple[NDArray[np.float64], NDArray[np.float64]]]


class Row(NamedTuple):
    """A row of the table; None where a figure does not apply or cannot be measured."""

    name: str
    validation: float
    test: float
    code: tuple[int, int] | None = None
    core: Resources | None = None
    comparisons: Resources | None = None

    @property
    def cells(self) -> list[str]:
        """Its texts."""
        total = [r for r in (self.core, self.comparisons) if r is not None]
        sites = "" if self.core is None else f"{self.core.lut_sites:,}"
        if self.comparisons is not None:
            sites += f" + {self.comparisons.lut_sites:,}"
        return [
            self.name,
            f"{100 * self.validation:.2f}",
            f"{100 * self.test:.2f}",
            *(f"{n:,}" for n in self.code or ()),
            *([] if self.code else ["", ""]),
            sites,
            f"{sum(r.ffs for r in total):,}" if total else "",
        ]


HEAD = [
    "model",
    "validation, %",
    "test, %",
    "bytes on Cortex-M0+",
    "on RV32IMC",
    "LUT sites",
    "registers",
]


def main() -> int:
    """Train all models, and print the table and the versions of the tools."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", help="files of UNSW-NB15; the embedded sample without")
    parser.add_argument("--aim", type=float, default=97.0, help="validation rows right, in %%")
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--without-network", action="store_true", help="leave out da4ml")
    arguments = parser.parse_args()
    aim = arguments.aim / 100
    prepared = _prepared(arguments.data, arguments.seed)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="n3ic-peers-") as name:
        folder = Path(name)
        try:
            rows.append(_tables(prepared, aim, folder / "tables"))
            rows += _forest(prepared, aim, folder)
            if not arguments.without_network:
                rows += _left_out(_network, prepared, aim, folder / "network")
        finally:
            print("\n".join(table(HEAD, [row.cells for row in rows])))
    print("\n" + "; ".join(_versions()))
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _left_out(make: Callable[..., Row], *arguments: Any) -> list[Row]:
    """A row of another tool, or a line on why there is none."""
    try:
        return [make(*arguments)]
    except (ImportError, OSError, subprocess.CalledProcessError) as error:
        _say(f"left out: {make.__name__.strip('_')} ({error})")
        return []


def _versions() -> Iterator[str]:
    for name in ("m2cgen", "conifer", "da4ml", "xgboost-cpu", "xgboost", synth.YOSYS):
        try:
            yield f"{name} {version(name)}"
        except ImportError:
            continue
    for tool in ("clang", "ghdl"):
        try:
            completed = subprocess.run(
                [tool, "--version"], check=True, capture_output=True, text=True
            )
            yield completed.stdout.splitlines()[0]
        except (OSError, subprocess.CalledProcessError):
            continue


# --- n3ic -------------------------------------------------------------------------------------


def _prepared(data: str | None, seed: int) -> Prepared:
    """Split rows, with the input bits of boosted tables."""
    case = load("n3ic.usecases", "anomaly")
    source = load("n3ic.datasets", case.default if data is None else case.dataset)
    values = {"family": "tables", "tables": "40", "entry-bits": "3", "coarse-cuts": "0.008"}
    recipe = case.recipes["published"].with_options(recipe_overrides(values))
    experiment = Experiment(
        source.load(data), recipe, protocol=case.protocol, seed=seed, with_baselines=False
    )
    return prepare(experiment, _say)


def _tables(prepared: Prepared, aim: float, folder: Path) -> Row:
    """The fewest boosted tables that reach the aim."""
    result = _first(prepared, aim)
    return Row(
        f"n3ic, {result.model.shape_text}",
        result.validation.accuracy,
        result.test.accuracy,
        *_measured(result.model, folder),
    )


def _first(prepared: Prepared, aim: float) -> TrainingResult:
    own = prepared.experiment
    for count in TABLES:
        changed = own.recipe.with_options(recipe_overrides({"tables": str(count)}))
        variant = replace(prepared, experiment=replace(own, recipe=changed))
        result = train_prepared(variant, TrainingProgress())
        _say(f"{count} tables: {result.validation.accuracy:.4f} of validation rows")
        if result.validation.accuracy >= aim:
            return result
    raise SystemExit(f"no number of tables reaches {aim}; give a smaller --aim")


def _measured(model: Classifier, folder: Path) -> tuple[tuple[int, int], Resources, Resources]:
    """Bytes of the plain C; resources of the core and of the comparisons with cuts."""
    n3ic.export(model, "host", folder / "c", style="plain", verify=False)
    cortex, rv32 = (int(figure.value) for figure in sizes(folder / "c"))
    card = folder / "card"
    options: dict[str, Any] = {
        "style": "unrolled",
        "input_stage": "features",
        "feature_bits": "own",
    }
    if "tables" in model.shape_text:
        options["outputs"] = "class"
    n3ic.export(model, "netfpga", card, verify=False, **options)
    features = synth.synthesise_sources([card / "rtl" / "n3ic_features.v"], "n3ic_features", {})
    return (cortex, rv32), synth.synthesise(card), features


# --- forests ----------------------------------------------------------------------------------


def _forest(prepared: Prepared, aim: float, folder: Path) -> Iterator[Row]:
    """One boosted forest: by n3ic, by m2cgen and by conifer."""
    parts = prepared.train, prepared.validation, prepared.test
    shifts = [
        max(0, int(most).bit_length() - FEATURE_BITS)
        for most in np.quantile(parts[0].columns, 0.999, axis=0)
    ]
    narrow = [
        np.minimum(rows.columns.astype(np.int64) >> shifts, (1 << FEATURE_BITS) - 1)
        for rows in parts
    ]
    labels = [rows.label for rows in parts]
    depth, rounds = _smallest_forest(narrow, labels, aim)
    forest = _boosted(depth, rounds).fit(narrow[0], labels[0])
    name = f"{rounds} boosted trees of depth {depth}"
    columns = [f"x{i}" for i in range(narrow[0].shape[1])]
    model = n3ic.from_sklearn(forest, pd.DataFrame(narrow[0][:2000], columns=columns))
    own = [model.infer(model.encode(dict(zip(columns, rows.T, strict=True)))) for rows in narrow]
    right = [float((own[i].classes == labels[i]).mean()) for i in (1, 2)]
    yield Row(f"n3ic, {name}", right[0], right[1], *_measured(model, folder / "forest"))
    for make in (_m2cgen, _conifer):
        yield from _left_out(make, name, forest, narrow, labels, folder)


def _boosted(depth: int, rounds: int) -> Any:
    xgboost = importlib.import_module("xgboost")
    return xgboost.XGBClassifier(
        n_estimators=rounds, max_depth=depth, learning_rate=0.5, base_score=0.5, n_jobs=1
    )


def _smallest_forest(rows: list[Ints], labels: list[Ints], aim: float) -> tuple[int, int]:
    """Depth and rounds of the forest with the fewest leaves, had all trees all leaves."""
    in_reach = []
    for depth in DEPTHS:
        forest = _boosted(depth, ROUNDS).fit(rows[0], labels[0])
        for rounds in range(1, ROUNDS + 1):
            right = forest.predict(rows[1], iteration_range=(0, rounds)) == labels[1]
            if right.mean() >= aim:
                in_reach.append((rounds << depth, depth, rounds))
                break
    if not in_reach:
        raise SystemExit(f"no forest reaches {aim}; give a smaller --aim")
    return min(in_reach)[1:]


def _m2cgen(name: str, forest: Any, rows: list[Ints], labels: list[Ints], folder: Path) -> Row:
    """C of m2cgen; the compiler's functions for doubles, and ``exp``, are not counted."""
    headers = folder / "m2cgen"
    headers.mkdir()
    (headers / "math.h").write_text("double exp(double);\n")
    (headers / "string.h").write_text("void *memcpy(void *, const void *, __SIZE_TYPE__);\n")
    source = headers / "forest.c"
    source.write_text(importlib.import_module("m2cgen").export_to_c(forest), encoding="utf-8")
    byte_counts = []
    for flags in PROCESSORS.values():
        out = headers / "forest.o"
        words = ["clang", *flags, *SMALL, f"-I{headers}", str(source), "-o", str(out)]
        subprocess.run(words, check=True)
        byte_counts.append(loaded_bytes(out.read_bytes()))
    accuracy = [float((forest.predict(rows[i]) == labels[i]).mean()) for i in (1, 2)]
    code = byte_counts[0], byte_counts[1]
    return Row(f"m2cgen, {name}", accuracy[0], accuracy[1], code=code)


class _Numbers:
    """conifer's converter of numbers, which otherwise needs the headers of Vivado HLS."""

    def __init__(self, kind: str) -> None:
        self.width, self.integer_bits = (int(n) for n in re.findall(r"\d+", kind)[:2])
        self.fractional_bits = self.width - self.integer_bits

    def to_int(self, number: float) -> int:
        """Round down, as its type does."""
        return math.floor(float(number) * 2.0**self.fractional_bits)

    def from_int(self, number: float) -> float:
        """Back to a number."""
        return float(number) / 2.0**self.fractional_bits


def _conifer(name: str, forest: Any, rows: list[Ints], labels: list[Ints], folder: Path) -> Row:
    """The VHDL of conifer, of the same forest, simulated on all validation and test rows."""
    conifer = importlib.import_module("conifer")
    vhdl = importlib.import_module("conifer.backends.vhdl")
    writer: Any = importlib.import_module("conifer.backends.vhdl.writer")
    writer.FixedPointConverter = _Numbers
    vhdl.set_simulator("ghdl")
    out = folder / "conifer"
    # Powers of two change no split.
    same = _boosted(forest.max_depth, forest.n_estimators).fit(rows[0] * SCALE, labels[0])
    how = {
        "Backend": "vhdl",
        "ProjectName": "forest",
        "OutputDir": str(out),
        "Precision": f"ap_fixed<{WIDTH},{INTEGER}>",
        "XilinxPart": "xc7vx690tffg1761-3",
    }
    model = conifer.converters.convert_from_xgboost(same, how)
    model.write()
    with _inside(out):
        subprocess.run(["sh", "ghdl_compile.sh"], check=True, capture_output=True)
    accuracy, differ = [], 0
    for i in (1, 2):
        positive = model.decision_function(rows[i] * SCALE).ravel() > 0
        accuracy.append(float((positive == labels[i]).mean()))
        differ += int((positive != forest.predict(rows[i])).sum())
    _say(f"conifer: {differ} of {len(rows[1]) + len(rows[2])} rows differ from the forest")
    with _inside(out):
        words = ["ghdl", "--synth", "--std=08", "--out=verilog", "--work=BDT", "BDTTop"]
        verilog = subprocess.run(words, check=True, capture_output=True).stdout
        Path("BDTTop.v").write_bytes(verilog)
    core = synth.synthesise_sources([out / "BDTTop.v"], "BDTTop", {})
    return Row(f"conifer, VHDL, {name}", accuracy[0], accuracy[1], core=core)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder, where GHDL leaves its libraries."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


# --- a network --------------------------------------------------------------------------------


def _network(prepared: Prepared, aim: float, folder: Path) -> Row:
    """da4ml's Verilog of a network with a hidden layer, on the input bits of the tables."""
    tracing = importlib.import_module("da4ml.trace")
    code = importlib.import_module("da4ml.codegen")
    rows = [r.bits.astype(np.float64) for r in (prepared.validation, prepared.test)]
    labels = prepared.validation.label, prepared.test.label
    layers: Layers = []
    neurons = 0
    for neurons in NEURONS:
        layers = _trained(prepared, neurons)
        best = float(((_outputs(layers, rows[0]) > 0) == labels[0]).mean())
        _say(f"{neurons} neurons: {best:.4f} of validation rows")
        if best >= aim:
            break
    zeros = np.zeros(rows[0].shape[1])
    bits = tracing.FixedVariableArrayInput(zeros.shape, hwconf=tracing.HWConfig(1, -1, -1))
    inputs = bits.quantize(k=0, i=1, f=0)
    (w0, b0), (w1, b1) = layers
    hidden = (inputs @ w0 + b0).relu()
    hidden = hidden.quantize(k=0, i=2, f=SUM_BITS - 2, overflow_mode="SAT", round_mode="RND")
    made = tracing.comb_trace(bits, hidden @ w1 + b1)
    model = code.VerilogModel(made, "network", folder, latency_cutoff=2, print_latency=False)
    model.write()
    accuracy = []
    for mine, label in zip(rows, labels, strict=True):
        scores = made.predict(mine).ravel()
        if (scores != _outputs(layers, mine)).any():
            raise SystemExit("da4ml's logic differs from the network")
        accuracy.append(float(((scores > 0) == label).mean()))
    sources = [*folder.glob("src/*.v"), *folder.glob("src/static/*.v")]
    core = synth.synthesise_sources([s for s in sources if "wrapper" not in s.name], "network", {})
    name = f"da4ml, {rows[0].shape[1]}-{neurons}-1, weights of {WEIGHT_BITS} bits"
    return Row(name, accuracy[0], accuracy[1], core=core)


def _outputs(layers: Layers, bits: NDArray[np.float64]) -> NDArray[np.float64]:
    """The network's output, exact in doubles."""
    (w0, b0), (w1, b1) = layers
    step = 2.0 ** (SUM_BITS - 2)
    hidden = np.clip(np.floor((bits @ w0 + b0) * step + 0.5), 0, 2**SUM_BITS - 1) / step
    out: NDArray[np.float64] = (hidden @ w1 + b1).ravel()
    return out


def _trained(prepared: Prepared, neurons: int, epochs: int = 30, batch: int = 1024) -> Layers:
    """Train with rounded weights, sums and biases, which gradients pass."""
    import torch

    def rounded(x: Any, step: float, low: float, high: float) -> Any:
        inside = torch.clamp(x, low / step, high / step)
        return inside + (torch.floor(inside * step + 0.5) / step - inside).detach()

    step, half = 2.0 ** (WEIGHT_BITS - 2), 2 ** (WEIGHT_BITS - 1)
    torch.set_num_threads(1)  # matrices are small
    torch.manual_seed(prepared.experiment.seed)
    inputs = torch.tensor(prepared.train.bits, dtype=torch.float32)
    label = torch.tensor(prepared.train.label, dtype=torch.float32)
    layers = torch.nn.Linear(inputs.shape[1], neurons), torch.nn.Linear(neurons, 1)
    values = [p for layer in layers for p in layer.parameters()]
    rate = torch.optim.Adam(values, 1e-2)
    turns = epochs * -(-len(inputs) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(rate, 2e-2, turns)

    def quantised() -> list[tuple[Any, Any]]:
        return [
            (rounded(x.weight, step, -half, half - 1), rounded(x.bias, step, -128, 127))
            for x in layers
        ]

    def forward(x: Any) -> Any:
        (w0, b0), (w1, b1) = quantised()
        sums = rounded(x @ w0.T + b0, 2.0 ** (SUM_BITS - 2), 0, 2**SUM_BITS - 1)
        return (sums @ w1.T + b1).ravel()

    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(batch):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                2 * forward(inputs[rows]), label[rows]
            )
            rate.zero_grad()
            loss.backward()
            rate.step()
            schedule.step()
    with torch.no_grad():
        return [(w.T.double().numpy(), b.double().numpy()) for w, b in quantised()]


if __name__ == "__main__":
    sys.exit(main())
