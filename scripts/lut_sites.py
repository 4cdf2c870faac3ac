#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Accuracy against look-up tables: networks trained with several seeds, and what each one takes.

``scripts/lut_sites.py --data PATH --networks published:density=0.25
published-voting-trees:trees=1`` prints a Markdown table with a row per network. A network is a
recipe, and after a colon the options that differ from it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory

from n3ic.cli.recipe_options import recipe_overrides
from n3ic.data.table import FlowTable
from n3ic.errors import UsageError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.graph.bit_tables import unrolled as tables
from n3ic.exporters.netfpga.packet.wrapper import feature_widths, features_text
from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.tools import synth
from n3ic.exporters.netfpga.unrolled import design as unrolled_design
from n3ic.exporters.netfpga.unrolled import write as unrolled_write
from n3ic.exporters.netfpga.unrolled.size import count
from n3ic.families.tables.network import TablesModel
from n3ic.model.network import BinaryModel, binary_network
from n3ic.model.passes import simplify
from n3ic.plugins import load
from n3ic.runs.experiment import TrainingResult, train_prepared
from n3ic.runs.preparation import Experiment, prepare
from n3ic.runs.progress import TrainingProgress
from n3ic.training.recipe import Recipe, Training
from n3ic.usecases.base import UseCase
from n3ic.util.markdown import percent

UnrolledModel = BinaryModel | TablesModel
NETWORKS = ("published", "published:density=0.25", "published-voting-trees")


@dataclass(frozen=True, eq=False)
class Point:
    """A network trained with several seeds.

    Attributes:
        name: recipe and options.
        pipeline: look-up tables in series between two registers.
        results: the trained networks and their figures, one per seed.
        cores: resources of each network's unrolled core, which outputs the class.
        comparisons: resources of the comparisons before it, from features to input bits; empty
            if nothing was measured.
        clocks: clocks from input to result, as the generator counts the stages.
    """

    name: str
    pipeline: int
    results: tuple[TrainingResult, ...]
    cores: tuple[Resources, ...]
    comparisons: tuple[Resources, ...]
    clocks: tuple[int, ...]

    @property
    def row(self) -> str:
        """One row of the table, as Markdown."""
        unseen = [r.test.accuracy_unseen for r in self.results if r.test.accuracy_unseen]
        compared = [c.lut_sites for c in self.comparisons]
        cells = [
            self.name,
            percent(fmean(r.validation.accuracy for r in self.results), 2),
            _spread([r.test.accuracy for r in self.results]),
            _spread(unseen) if unseen else "",
            *(
                f"{fmean(values):,.0f}" if values else ""
                for values in (
                    [_cuts(_model(r)) for r in self.results],
                    compared,
                    [self.pipeline],
                    [c.luts for c in self.cores],
                    [c.lut_sites for c in self.cores],
                    [c.ffs for c in self.cores],
                    self.clocks,
                )
            ),
            self.cores[0].kind,
        ]
        return f"| {' | '.join(cells)} |"


HEAD = (
    "| network | validation | test | unseen | cuts | sites of the comparisons | tables a stage "
    "| LUT cells | LUT sites | FF | clocks | sizes |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def _spread(shares: Sequence[float]) -> str:
    """Mean and standard deviation of shares, in per cent."""
    text = percent(fmean(shares), 2)
    return f"{text} +- {100 * stdev(shares):.2f}" if len(shares) > 1 else text


def _model(result: TrainingResult) -> UnrolledModel:
    """The trained model, simplified."""
    model = result.model
    return simplify(model if isinstance(model, TablesModel) else binary_network(model)).model


def _cuts(model: UnrolledModel) -> int:
    """The number of different comparisons of a feature with a constant, which are input bits."""
    fields = model.input.fields
    return len({(f.feature, cut) for f in fields for cut in f.cuts})


def points(
    case: UseCase,
    table: FlowTable,
    networks: Sequence[str],
    *,
    seeds: Sequence[int],
    pipelines: Sequence[int] = (1,),
    synthesise: bool = False,
    feature_bits: str = "32",
) -> Iterator[Point]:
    """Train each network with each seed; sizes are estimated, or measured with Yosys.

    Args:
        case: what to train.
        table: its rows.
        networks: the networks, each ``RECIPE`` or ``RECIPE:OPTION=VALUE,...``.
        seeds: seeds of the split and the training.
        pipelines: look-up tables in series between two registers; each gives a point.
        synthesise: measure instead of estimating.
        feature_bits: bits of a feature that comparisons read, as for an export.

    Raises:
        UsageError: A network is not a recipe with options.
        MissingDependencyError: Yosys is not installed.
    """
    recipes = {name: _recipe(case, name) for name in networks}
    progress = TrainingProgress()
    trained: dict[str, list[TrainingResult]] = {name: [] for name in networks}
    for seed in seeds:
        for bits in dict.fromkeys(map(_of_bits, recipes.values())):
            same = {name: recipe for name, recipe in recipes.items() if _of_bits(recipe) == bits}
            experiment = Experiment(
                table, bits, protocol=case.protocol, seed=seed, with_baselines=False
            )
            prepared = prepare(experiment, progress.stage)
            for name, recipe in same.items():
                variant = replace(prepared, experiment=replace(experiment, recipe=recipe))
                trained[name].append(train_prepared(variant, progress))
    for name, results in trained.items():
        models = [_model(result) for result in results]
        compared = tuple(measure_comparisons(m, feature_bits) for m in models if synthesise)
        for levels in pipelines:
            sizes = (
                measure(m, levels) if synthesise else count(_design(m, levels)) for m in models
            )
            clocks = tuple(_design(m, levels).plan.depth for m in models)
            yield Point(name, levels, tuple(results), tuple(sizes), compared, clocks)


def _recipe(case: UseCase, name: str) -> Recipe:
    which, _, options = name.partition(":")
    if which not in case.recipes:
        raise UsageError(f"no recipe {which!r}, expected one of {', '.join(case.recipes)}")
    typed = dict(pair.split("=", 1) for pair in options.split(",") if "=" in pair)
    return case.recipes[which].with_options(recipe_overrides(typed))


def _of_bits(recipe: Recipe) -> Recipe:
    """The part of a recipe that decides bits and teacher, which networks can share."""
    hidden = recipe.training.hidden if recipe.encoding == "weighted" else Training().hidden
    shared = Training(hidden=hidden, distill=float(recipe.training.distill > 0))
    return replace(recipe, name="", summary="", training=shared)


def _design(model: UnrolledModel, pipeline: int) -> unrolled_design.Design:
    if isinstance(model, TablesModel):
        return tables.design(model, "class", pipeline)
    return unrolled_design.design(model, pipeline=pipeline)


def measure(model: UnrolledModel, pipeline: int = 1) -> Resources:
    """Resources of the unrolled core of a model, from Yosys.

    Raises:
        MissingDependencyError: Yosys is not installed.
        VerifyError: Yosys fails.
    """
    with TemporaryDirectory(prefix="n3ic-sites-") as name:
        if isinstance(model, TablesModel):
            ports = tables.write(model, Path(name), pipeline=pipeline, outputs="class")
        else:
            ports = unrolled_write.write(model, Path(name), pipeline=pipeline)
        sources = (f"rtl/{unrolled_write.CELLS}", f"rtl/{unrolled_write.FILE}")
        _core(model, sources, **ports).save(Path(name))
        return synth.synthesise(Path(name))


def measure_comparisons(model: UnrolledModel, feature_bits: str = "32") -> Resources:
    """Resources of the stage from features to input bits, from Yosys.

    Args:
        model: the model.
        feature_bits: bits of a feature, as for an export.

    Raises:
        MissingDependencyError: Yosys is not installed.
        VerifyError: Yosys fails.
    """
    text = features_text(model, feature_widths(model.input, {"feature-bits": feature_bits}))
    with TemporaryDirectory(prefix="n3ic-sites-") as name:
        (Path(name) / "n3ic_features.v").write_text(text, encoding="utf-8")
        _core(model, ("n3ic_features.v",)).save(Path(name))
        return synth.synthesise(Path(name), "n3ic_features")


def _core(model: UnrolledModel, sources: tuple[str, ...], **ports: object) -> CorePorts:
    widths = {"class_w": 1, "score_w": 1, "trace_w": 0, "write_port": False, "wr_aw": 0, "wr_dw": 0}
    return CorePorts(
        style="unrolled",
        n_in=model.input.n_bits,
        n_classes=len(model.classes),
        sources=sources,
        **{**widths, **ports},  # type: ignore[arg-type]
    )


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="files of the data set; default: the embedded sample")
    parser.add_argument("--usecase", default="anomaly")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), metavar="RECIPE:OPTIONS")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--pipeline", type=int, nargs="+", default=[1])
    parser.add_argument("--synth", action="store_true", help="measure with Yosys")
    parser.add_argument("--feature-bits", choices=("32", "own"), default="32")
    arguments = parser.parse_args()
    case = load("n3ic.usecases", arguments.usecase)
    source = load("n3ic.datasets", case.default if arguments.data is None else case.dataset)
    sys.stdout.write(HEAD + "\n")
    for point in points(
        case,
        source.load(arguments.data),
        arguments.networks,
        seeds=arguments.seeds,
        pipelines=arguments.pipeline,
        synthesise=arguments.synth,
        feature_bits=arguments.feature_bits,
    ):
        sys.stdout.write(point.row + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
