"""From a table to a proven integer network, with its figures beside its baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import Split, SplitProtocol, split, twins
from n3ic.data.table import FlowTable
from n3ic.errors import ModelError, UsageError
from n3ic.evaluation.metrics import Evaluation, evaluate
from n3ic.model.bits import Bits, pack
from n3ic.model.inputs import UINT32_MAX, Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.training.recipe import Recipe

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

    from n3ic.training.baselines import Prediction, Rows
    from n3ic.training.binary_mlp import BinaryMLP
    from n3ic.training.loop import Epoch, EpochCallback

StageCallback = Callable[[str], None]


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
    protocol: SplitProtocol
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


def candidates(table: FlowTable, recipe: Recipe) -> tuple[str, ...]:
    """The features that a recipe chooses from.

    Raises:
        UsageError: a column does not exist.
    """
    if not recipe.columns:
        return table.usable
    names: list[str] = []
    for pattern in recipe.columns:
        exact = pattern in table.features
        found = [pattern] if exact else [n for n in table.features if fnmatchcase(n, pattern)]
        if not found:
            raise UsageError(f"{table.name} has no column {pattern}")
        names += found
    return tuple(dict.fromkeys(names))


def choose_input(
    table: FlowTable,
    recipe: Recipe,
    *,
    seed: int = 0,
    trees: HistGradientBoostingClassifier | None = None,
) -> tuple[InputSpec, dict[str, float]]:
    """Choose the input bits on a table of training rows.

    Args:
        table: training rows only.
        recipe: which columns, how many features and bits, and how they are cut.
        seed: of the boosted trees.
        trees: boosted trees that are fitted to all of the recipe's columns already.

    Returns:
        The spec, and the chi-squared statistic of every candidate feature.

    Raises:
        UsageError: a column does not exist, or the budget cannot be met.
    """
    from n3ic.training import input_bits

    columns = {n: table.features[n] for n in candidates(table, recipe)}
    catalogue = {f.name: f for f in table.catalogue}
    scores = input_bits.chi2_scores(columns, table.label)
    if recipe.features:
        kept = input_bits.chi2_features(columns, table.label, recipe.features)
        columns = {n: columns[n] for n in kept}
        trees = None  # those saw columns that are gone
    fields: tuple[Field, ...]
    if recipe.encoding == "binary":
        fields = input_bits.binary_fields(tuple(columns), recipe.field_bits, catalogue=catalogue)
    elif recipe.encoding == "quantile":
        fields = input_bits.quantile_fields(columns, recipe.bits, catalogue=catalogue)
    elif recipe.encoding == "weighted":
        fields = input_bits.weighted_fields(
            columns,
            table.label,
            recipe.bits,
            hidden=recipe.training.hidden,
            seed=seed,
            trees=trees,
            catalogue=catalogue,
        )
    else:
        fields = input_bits.boosted_fields(
            columns, table.label, recipe.bits, seed=seed, trees=trees, catalogue=catalogue
        )
    spec = InputSpec(fields)
    if spec.n_bits > recipe.bits:
        raise UsageError(
            f"{len(fields)} fields of {recipe.field_bits} bits are {spec.n_bits} bits, "
            f"more than the budget of {recipe.bits}; take fewer features or more bits"
        )
    return spec, scores


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows split and encoded, and what networks of every shape on them share.

    Attributes:
        table: what is trained on.
        parts: its split.
        protocol: how it was split.
        seed: of everything random.
        spec: the input bits.
        feature_scores: chi-squared statistic of each candidate feature on the training rows.
        bits: of all rows, bool of shape ``(rows, inputs)``.
        train: rows to train on.
        validation: rows to choose with.
        test: rows to evaluate on once.
        unseen: of each test row, whether no training row is equal to it: bool of shape ``(rows,)``.
        teacher: class probabilities of the training rows from boosted trees; None where the
            recipe distils from none.
        baselines: figures of the baselines that have no shape.
        baseline_scores: their scores on the test rows, of those that have scores.
    """

    table: FlowTable
    parts: Split
    protocol: SplitProtocol
    seed: int
    spec: InputSpec
    feature_scores: Mapping[str, float]
    bits: Bits = field(repr=False)
    train: Rows = field(repr=False)
    validation: Rows = field(repr=False)
    test: Rows = field(repr=False)
    unseen: NDArray[np.bool_] = field(repr=False)
    teacher: NDArray[np.float64] | None = field(repr=False)
    baselines: Mapping[str, Evaluation]
    baseline_scores: Mapping[str, NDArray[np.float64]] = field(repr=False)


def prepare(
    table: FlowTable,
    recipe: Recipe,
    *,
    protocol: SplitProtocol,
    seed: int,
    with_baselines: bool,
    say: StageCallback,
) -> Prepared:
    """Split a table, choose its input bits and train the baselines that have no shape.

    Args:
        table: labelled flows.
        recipe: how bits are chosen; of the training, whether it distils, and for ``weighted`` bits
            the hidden layers that they are for.
        protocol: how the rows are split.
        seed: of the split and of everything that is trained here.
        with_baselines: whether baselines are trained.
        say: called with a line about each step.

    Raises:
        DataError: the table cannot be split that way.
        UsageError: the recipe does not fit the table, or its training rows have a single class.
    """
    from n3ic.training.baselines import Rows, class_probabilities, shapeless_baselines
    from n3ic.training.input_bits import boosted_trees

    parts = split(table, protocol, seed)
    n_classes = len(table.classes)
    absent = set(range(n_classes)) - set(table.label[parts.train].tolist())
    if len(absent) > n_classes - 2:
        raise UsageError(f"{table.name}: the training rows have fewer than two classes")
    names = candidates(table, recipe)
    trees = None
    if with_baselines or recipe.training.distill:
        say("training boosted trees")
        own = {n: table.features[n][parts.train] for n in names}
        trees = boosted_trees(own, table.label[parts.train], seed=seed)
    say("choosing input bits")
    spec, scores = choose_input(table.rows(parts.train), recipe, seed=seed, trees=trees)
    bits = spec.encode(table.features)
    columns = np.clip(table.matrix(names), 0, UINT32_MAX)

    def rows(index: NDArray[np.int64]) -> Rows:
        return Rows(bits[index], columns[index], table.label[index])

    train_rows, test = rows(parts.train), rows(parts.test)
    teacher = None
    if trees is not None and recipe.training.distill:
        teacher = class_probabilities(trees.predict_proba(train_rows.columns), trees, n_classes)
    unseen = ~twins(table, parts.train, parts.test)
    figures: dict[str, Evaluation] = {}
    scores_of: dict[str, NDArray[np.float64]] = {}
    if with_baselines and trees is not None:
        for other in shapeless_baselines(train_rows, test, n_classes, seed, trees):
            say(f"baseline: {other.name}")
            figures[other.name] = _figures_of(other, test.label, n_classes, unseen)
            if other.scores is not None:
                scores_of[other.name] = other.scores
    return Prepared(
        table=table,
        parts=parts,
        protocol=protocol,
        seed=seed,
        spec=spec,
        feature_scores=scores,
        bits=bits,
        train=train_rows,
        validation=rows(parts.validation),
        test=test,
        unseen=unseen,
        teacher=teacher,
        baselines=figures,
        baseline_scores=scores_of,
    )


def _figures_of(
    other: Prediction, label: NDArray[np.int64], n_classes: int, unseen: NDArray[np.bool_]
) -> Evaluation:
    return evaluate(label, other.predicted, other.scores, n_classes, unseen=unseen)


def train(
    table: FlowTable,
    recipe: Recipe,
    *,
    protocol: SplitProtocol = "random",
    seed: int = 0,
    name: str = "model",
    with_baselines: bool = True,
    progress: EpochCallback | None = None,
    stage: StageCallback | None = None,
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
    (result,) = train_shapes(
        table,
        recipe,
        [recipe.training.hidden],
        protocol=protocol,
        seed=seed,
        name=name,
        with_baselines=with_baselines,
        progress=progress,
        stage=stage,
    )
    return result


def train_shapes(
    table: FlowTable,
    recipe: Recipe,
    shapes: Sequence[tuple[int, ...]],
    *,
    protocol: SplitProtocol = "random",
    seed: int = 0,
    name: str = "model",
    with_baselines: bool = True,
    progress: EpochCallback | None = None,
    stage: StageCallback | None = None,
) -> Iterator[Result]:
    """Train networks of several shapes on the same rows, one after the other.

    Rows, input bits and the baselines that have no shape are shared, so that this takes less
    than :func:`train` for each; the results are the same. ``weighted`` bits are chosen for a
    shape: with them, nothing is shared.

    Args:
        table: labelled flows.
        recipe: everything else that decides the networks.
        shapes: neurons of the hidden layers of each network.
        protocol: how the rows are split.
        seed: of the split, the choice of bits, and the training.
        name: the models' name.
        with_baselines: whether the baselines are trained, too.
        progress: called after every epoch.
        stage: called with a line about each step.

    Raises:
        DataError: the table cannot be split that way.
        UsageError: the recipe does not fit the table.
    """
    say = stage or (lambda _: None)
    prepared: Prepared | None = None
    for hidden in shapes:
        own = recipe.with_options({"hidden": tuple(hidden)})
        if prepared is None or recipe.encoding == "weighted":  # weighted bits are for a shape
            prepared = prepare(
                table, own, protocol=protocol, seed=seed, with_baselines=with_baselines, say=say
            )
        yield _train(prepared, own, name, with_baselines, progress, say)


def _train(
    prepared: Prepared,
    recipe: Recipe,
    name: str,
    with_baselines: bool,
    progress: EpochCallback | None,
    say: StageCallback,
) -> Result:
    from n3ic.training.baselines import float_mlp
    from n3ic.training.fit import fit_network
    from n3ic.training.fold import fold

    rows, held, seed = prepared.train, prepared.validation, prepared.seed
    n_classes = len(prepared.table.classes)
    say("training the binary network")
    trained = fit_network(
        rows.bits,
        rows.label,
        n_classes,
        recipe.training,
        seed=seed,
        validation=(held.bits, held.label),
        teacher=prepared.teacher,
        progress=progress,
    )
    model = fold(
        trained.network,
        prepared.spec,
        prepared.table.classes,
        name=name,
        provenance=_provenance(prepared.table, recipe, prepared.protocol, seed),
    )
    say("comparing the folded network with the trained one")
    check_fold(trained.network, model, prepared.bits)
    if recipe.training.polish:
        from n3ic.training.polish import polish

        say("polishing the integer network")
        model = polish(model, pack(rows.bits), rows.label, rounds=recipe.training.polish, seed=seed)
    mlp = None
    if with_baselines:
        say("baseline: float_mlp")
        mlp = float_mlp(rows, held, prepared.test, n_classes, recipe.training.hidden, seed)
    return _result(prepared, recipe, model, trained.history, mlp)


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
    prepared: Prepared,
    recipe: Recipe,
    model: BinaryModel,
    history: tuple[Epoch, ...],
    mlp: Prediction | None,
) -> Result:
    table, parts, bits, unseen = prepared.table, prepared.parts, prepared.bits, prepared.unseen
    n_classes = len(table.classes)
    label = table.label[parts.test]
    scores = {
        name: model.scores(pack(bits[index])).astype(np.float64)
        for name, index in vars(parts).items()
    }
    predicted = {name: s.argmax(axis=1).astype(np.int64) for name, s in scores.items()}

    def figures(name: str, index: NDArray[np.int64], of: NDArray[np.bool_] | None) -> Evaluation:
        return evaluate(table.label[index], predicted[name], scores[name], n_classes, unseen=of)

    kept = {"binary": scores["test"]} | dict(prepared.baseline_scores)
    baselines = dict(prepared.baselines)
    if mlp is not None:
        baselines[mlp.name] = _figures_of(mlp, label, n_classes, unseen)
        if mlp.scores is not None:
            kept[mlp.name] = mlp.scores
    return Result(
        model=model,
        protocol=prepared.protocol,
        recipe=recipe,
        test=figures("test", parts.test, unseen),
        validation=figures("validation", parts.validation, None),
        train_accuracy=float((predicted["train"] == table.label[parts.train]).mean()),
        twin_share=float((~unseen).mean()),
        baselines=baselines,
        history=history,
        feature_scores=prepared.feature_scores,
        test_label=label,
        test_scores=kept,
        rows={name: len(index) for name, index in vars(parts).items()},
    )
