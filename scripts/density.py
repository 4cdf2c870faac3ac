#!/usr/bin/env python3
"""Accuracy against size: one network trained at several densities, and what each takes.

``scripts/density.py --data PATH`` prints the table as Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from n3ic.exporters.netfpga import unrolled
from n3ic.exporters.netfpga.core import Core
from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.tools import synth
from n3ic.exporters.netfpga.unrolled.size import estimate
from n3ic.model.network import BinaryModel
from n3ic.plugins import load
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.util.markdown import percent

DENSITIES = (1.0, 0.5, 0.25, 0.125)


@dataclass(frozen=True, eq=False)
class Density:
    """A network at one density.

    Attributes:
        density: share of the hidden layers' connections that were kept.
        model: the network.
        validation: accuracy on the validation rows.
        test: accuracy on the test rows.
        size: resources of the unrolled core that puts out the class.
        clocks: clocks from input to result, as the generator counts its stages.
    """

    density: float
    model: BinaryModel
    validation: float
    test: float
    size: Resources
    clocks: int


def bench_density(
    data: str | Path | None = None,
    *,
    usecase: str = "anomaly",
    recipe: str = "default",
    densities: Sequence[float] = DENSITIES,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    synthesise: bool = False,
) -> Iterator[Density]:
    """Train at each density; sizes are estimated, or measured with Yosys.

    Args:
        data: files of the use case's data set; None for its embedded sample.
        usecase: what to train.
        recipe: the use case's recipe.
        densities: shares of connections to keep.
        options: values of the recipe to replace.
        seed: of the split and the training.
        synthesise: measure instead of estimating.

    Raises:
        UsageError: an option has a value that it cannot have.
        DataError: the files are not what they should be.
        MissingDependencyError: Yosys is not installed.
    """
    case = load("n3ic.usecases", usecase)
    source = load("n3ic.datasets", case.default if data is None else case.dataset)
    table = source.load(data)
    for density in densities:
        chosen = case.recipes[recipe].with_options({**(options or {}), "density": density})
        result = train(
            Experiment(
                table,
                chosen,
                protocol=case.protocol,
                seed=seed,
                name=usecase,
                with_baselines=False,
            )
        )
        yield Density(
            density,
            result.model,
            result.validation.accuracy,
            result.test.accuracy,
            measure(result.model) if synthesise else estimate(result.model),
            unrolled.latency(result.model),
        )


def measure(model: BinaryModel) -> Resources:
    """Resources of the unrolled core of a model, from Yosys.

    Raises:
        MissingDependencyError: Yosys is not installed.
        VerifyError: it fails.
    """
    with TemporaryDirectory(prefix="n3ic-density-") as name:
        ports = unrolled.write(model, Path(name))
        core = Core(
            style="unrolled",
            n_in=model.shape[0],
            n_classes=model.shape[-1],
            sources=(f"rtl/{unrolled.CELLS}", f"rtl/{unrolled.FILE}"),
            **ports,
        )
        core.save(Path(name))
        return synth.synthesise(Path(name))


def row(point: Density) -> str:
    """One row of the table, as Markdown."""
    size = point.size
    return (
        f"| {point.density:g} | {percent(point.validation, 2)} | {percent(point.test, 2)} "
        f"| {size.luts:,} | {size.lut_sites:,} | {size.ffs:,} | {point.clocks} | {size.kind} |"
    )


HEAD = (
    "| density | validation | test | LUT cells | LUT sites | FF | clocks | sizes |\n"
    "|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="files of the data set; the embedded sample without")
    parser.add_argument("--usecase", default="anomaly")
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--density", type=float, nargs="+", default=list(DENSITIES))
    parser.add_argument("--hidden", type=int, nargs="+", help="neurons of the hidden layers")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--synth", action="store_true", help="measure with Yosys")
    given = parser.parse_args()
    options = {"hidden": tuple(given.hidden) if given.hidden else None, "epochs": given.epochs}
    sys.stdout.write(HEAD + "\n")
    for point in bench_density(
        given.data,
        usecase=given.usecase,
        recipe=given.recipe,
        densities=given.density,
        options=options,
        seed=given.seed,
        synthesise=given.synth,
    ):
        sys.stdout.write(row(point) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
