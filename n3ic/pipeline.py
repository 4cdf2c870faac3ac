"""From a table to a proven integer network, with its figures beside its baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.bits import Bits, pack
from n3ic.errors import ModelError, UsageError
from n3ic.evaluate import Evaluation, evaluate
from n3ic.inputs import Field, InputSpec
from n3ic.model import BinaryModel
from n3ic.recipe import Recipe
from n3ic.split import Protocol, Split, split, twins
from n3ic.table import FlowTable

if TYPE_CHECKING:
    from n3ic.baselines import Prediction
    from n3ic.train.fit import Epoch, Progress
    from n3ic.train.network import BinaryMLP

Stage = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Result:
    """A trained network and what it does on the test rows.

    Attributes:
        model: the integer network.
        protocol: how the rows were split.
        recipe: how the network was trained.
        test: figures on the test rows.
        validation: figures on the rows that chose the epoch.
        train_accuracy: accuracy on the training rows.
        twin_share: share of the test rows that are equal to some training row.
        baselines: figures of each baseline on the test rows.
        history: figures of each epoch.
        feature_scores: chi-squared statistic of each candidate feature on the training rows.
        test_label: true class of each test row.
        test_scores: scores of the network (``binary``) and of the baselines on the test rows.
        rows: number of training, validation and test rows.
    """

    model: BinaryModel
    protocol: Protocol
    recipe: Recipe
    test: Evaluation
    validation: Evaluation
    train_accuracy: float
    twin_share: float
    baselines: Mapping[str, Evaluation]
    history: tuple[Epoch, ...]
    feature_scores: Mapping[str, float]
    test_label: NDArray[np.int64]
    test_scores: Mapping[str, NDArray[np.floating]] = field(repr=False)
    rows: Mapping[str, int]


def choose_input(
    table: FlowTable, recipe: Recipe, *, seed: int = 0
) -> tuple[InputSpec, dict[str, float]]:
    """Choose the input bits on a table of training rows.

    Args:
        table: training rows only.
        recipe: which columns, how many features and bits, and how they are cut.
        seed: of the boosted trees.

    Returns:
        The spec, and the chi-squared statistic of every candidate feature.

    Raises:
        UsageError: a column does not exist, or the budget cannot be met.
    """
    from n3ic import select

    names = recipe.columns or table.usable
    unknown = [n for n in names if n not in table.features]
    if unknown:
        raise UsageError(f"{table.name} has no column {', '.join(unknown)}")
    columns = {n: table.features[n] for n in names}
    catalogue = {f.name: f for f in table.catalogue}
    scores = select.chi2_scores(columns, table.label)
    if recipe.features:
        kept = select.chi2_features(columns, table.label, recipe.features)
        columns = {n: columns[n] for n in kept}
    fields: tuple[Field, ...]
    if recipe.encoding == "binary":
        fields = select.binary_fields(tuple(columns), recipe.field_bits, catalogue=catalogue)
    elif recipe.encoding == "quantile":
        fields = select.quantile_fields(columns, recipe.bits, catalogue=catalogue)
    elif recipe.encoding == "weighted":
        fields = select.weighted_fields(
            columns,
            table.label,
            recipe.bits,
            hidden=recipe.training.hidden,
            seed=seed,
            catalogue=catalogue,
        )
    else:
        fields = select.boosted_fields(
            columns, table.label, recipe.bits, seed=seed, catalogue=catalogue
        )
    spec = InputSpec(fields)
    if spec.n_bits > recipe.bits:
        raise UsageError(
            f"{len(fields)} fields of {recipe.field_bits} bits are {spec.n_bits} bits, "
            f"more than the budget of {recipe.bits}; take fewer features or more bits"
        )
    return spec, scores


def train(
    table: FlowTable,
    recipe: Recipe,
    *,
    protocol: Protocol = "random",
    seed: int = 0,
    name: str = "model",
    with_baselines: bool = True,
    progress: Progress | None = None,
    stage: Stage | None = None,
) -> Result:
    """Train on a table and evaluate once on its test rows.

    Args:
        table: labelled flows.
        recipe: everything that decides the network.
        protocol: how the rows are split.
        seed: of the split, the choice of bits, and the training.
        name: the model's name.
        with_baselines: whether the baselines are trained, too.
        progress: called after every epoch.
        stage: called with a line about each step.

    Raises:
        DataError: the table cannot be split that way.
        UsageError: the recipe does not fit the table.
    """
    from n3ic.baselines import Rows, baselines, boosting, class_probabilities
    from n3ic.train.fit import fit_network
    from n3ic.train.fold import fold

    say = stage or (lambda _: None)
    parts = split(table, protocol, seed)
    n_classes = len(table.classes)
    absent = set(range(n_classes)) - set(table.label[parts.train].tolist())
    if len(absent) > n_classes - 2:
        raise UsageError(f"{table.name}: the training rows have fewer than two classes")
    say("choosing input bits")
    spec, scores = choose_input(table.rows(parts.train), recipe, seed=seed)
    bits = spec.encode(table.features)
    columns = table.matrix(recipe.columns or table.usable)

    def rows(index: NDArray[np.int64]) -> Rows:
        return Rows(bits[index], columns[index], table.label[index])

    train_rows, held, test = rows(parts.train), rows(parts.validation), rows(parts.test)
    boosted = teacher = None
    if with_baselines or recipe.training.distill:
        say("training boosted trees")
        boosted = boosting(train_rows, seed)
        if recipe.training.distill:
            odds = boosted.predict_proba(train_rows.columns)
            teacher = class_probabilities(odds, boosted, n_classes)
    say("training the binary network")
    trained = fit_network(
        train_rows.bits,
        train_rows.label,
        n_classes,
        recipe.training,
        seed=seed,
        validation=(held.bits, held.label),
        teacher=teacher,
        progress=progress,
    )
    model = fold(
        trained.network,
        spec,
        table.classes,
        name=name,
        provenance=_provenance(table, recipe, protocol, seed),
    )
    say("comparing the folded network with the trained one")
    check_fold(trained.network, model, bits)
    if recipe.training.polish:
        from n3ic.train.polish import polish

        say("polishing the integer network")
        model = polish(
            model,
            pack(train_rows.bits),
            train_rows.label,
            rounds=recipe.training.polish,
            seed=seed,
        )
    return _result(
        table,
        parts,
        protocol,
        recipe,
        model,
        bits,
        trained.history,
        scores,
        baselines(train_rows, held, test, n_classes, recipe.training.hidden, seed, boosted)
        if with_baselines
        else (),
        say,
    )


def check_fold(network: BinaryMLP, model: BinaryModel, bits: Bits) -> None:
    """Compare the folded network's scores with the trained network's on every row.

    Raises:
        ModelError: they differ; this would be a defect of n3ic.
    """
    import torch

    k = model.output.n_inputs
    scores = model.scores(pack(bits))
    with torch.no_grad():
        for start in range(0, len(bits), 16_384):
            part = slice(start, start + 16_384)
            x = torch.from_numpy(np.where(bits[part], np.float32(1), np.float32(-1)))
            trained = network.integer_scores(x).numpy()
            wrong = np.flatnonzero((2 * scores[part] - k != trained).any(axis=1))
            if len(wrong):
                raise ModelError(
                    f"row {start + wrong[0]}: the folded network scores "
                    f"{scores[start + wrong[0]].tolist()}, the trained one "
                    f"{((trained[wrong[0]] + k) / 2).tolist()}"
                )


def _provenance(table: FlowTable, recipe: Recipe, protocol: str, seed: int) -> dict[str, str]:
    return {
        "data": table.name,
        "data_sha256": table.sha256,
        "synthetic": str(table.synthetic).lower(),
        "recipe": recipe.name,
        "protocol": protocol,
        "seed": str(seed),
    }


def _result(
    table: FlowTable,
    parts: Split,
    protocol: Protocol,
    recipe: Recipe,
    model: BinaryModel,
    bits: Bits,
    history: tuple[Epoch, ...],
    feature_scores: Mapping[str, float],
    others: Iterable[Prediction],
    say: Stage,
) -> Result:
    twin = twins(table, parts.train, parts.test)
    n_classes = len(table.classes)
    label = table.label[parts.test]

    def figures(index: NDArray[np.int64], unseen: NDArray[np.bool_] | None) -> Evaluation:
        scores = model.scores(pack(bits[index])).astype(np.float64)
        predicted = scores.argmax(axis=1).astype(np.int64)
        return evaluate(table.label[index], predicted, scores, n_classes, unseen=unseen)

    test = figures(parts.test, ~twin)
    kept = {"binary": model.scores(pack(bits[parts.test])).astype(np.float64)}
    beside = {}
    for other in others:
        say(f"baseline: {other.name}")
        beside[other.name] = evaluate(label, other.predicted, other.scores, n_classes, unseen=~twin)
        if other.scores is not None:
            kept[other.name] = other.scores
    trained_right = model.trace(pack(bits[parts.train])).classes == table.label[parts.train]
    return Result(
        model=model,
        protocol=protocol,
        recipe=recipe,
        test=test,
        validation=figures(parts.validation, None),
        train_accuracy=float(trained_right.mean()),
        twin_share=float(twin.mean()),
        baselines=beside,
        history=history,
        feature_scores=feature_scores,
        test_label=label,
        test_scores=kept,
        rows={
            "train": len(parts.train),
            "validation": len(parts.validation),
            "test": len(parts.test),
        },
    )
