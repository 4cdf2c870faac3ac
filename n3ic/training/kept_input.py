# SPDX-License-Identifier: Apache-2.0
"""Train a network that keeps the input and the shape of another and learns only its weights."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from n3ic.data.table import FlowTable
from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier
from n3ic.model.columns import ColumnRule
from n3ic.model.inputs import InputSpec
from n3ic.model.network import BinaryModel
from n3ic.training.recipe import Recipe
from n3ic.training.sizing import sized

_DECIDED = (
    "bits", "encoding", "features", "field_bits", "columns", "hidden", "trees", "leaves",
    "tree_bytes", "budget_bytes",
)  # fmt: skip


def kept_recipe(
    recipe: Recipe, fixed: Collection[str], models: Sequence[BinaryModel], n_classes: int
) -> Recipe:
    """A recipe for networks that keep the input bits and hidden layers of others.

    Args:
        recipe: the recipe, with the given values.
        fixed: names of the given values, which may include ``budget_bytes``.
        models: the networks whose input and hidden layers are kept, one or more.
        n_classes: number of classes.

    Raises:
        UsageError: a value contradicts the kept networks, or their shapes differ.
    """
    if against := [name.replace("_", "-") for name in _DECIDED if name in fixed]:
        raise UsageError(
            f"--input-of keeps the input bits and the hidden layers of {models[0].name}; leave "
            f"--{' and --'.join(against)} out, or --input-of"
        )
    if recipe.training.method == "trees":
        raise UsageError(
            "--input-of is for networks that learn weights only; decision trees choose inputs and "
            "shape: take another recipe or method"
        )
    shapes = {tuple(layer.n_outputs for layer in model.hidden) for model in models}
    if len(shapes) > 1:
        shape_text = ", ".join("-".join(map(str, shape)) for shape in sorted(shapes))
        raise UsageError(
            f"--input-of: expected networks of the same hidden layers, got {shape_text}; train the "
            "networks one by one"
        )
    bits = max(model.input.n_bits for model in models)
    own = recipe.with_options({"bits": bits, "hidden": shapes.pop()})
    # A device either has room for masks or not: another density fits, a first mask does not.
    masks = [layer.mask for model in models for layer in model.hidden]
    shares = [float(mask.mean()) for mask in masks if mask is not None]
    masked = "has" if shares else "has no"
    if bool(shares) != (recipe.training.density < 1):
        if "density" in fixed:
            raise UsageError(
                f"--input-of: {models[0].name} {masked} masks of connections; leave --density out"
            )
        own = own.with_options({"density": round(min(shares, default=1.0), 4)})
    if bits != recipe.bits:  # the best way to find weights depends on the number of bits
        own = sized(own, {*fixed, *_DECIDED}, n_classes)
    return own.with_options({"tree_bytes": 0})  # a tree would choose an input of its own


def kept_input(table: FlowTable, model: Classifier) -> InputSpec:
    """The input of a network, checked against a table's columns, classes and meter.

    Args:
        table: the table to train on.
        model: the network whose input is kept.

    Raises:
        UsageError: the table lacks a column or has it in another unit, or has other classes or
            another meter.
    """
    features, who = model.input.features, f"--input-of {model.name}"
    if missing := [name for name in features if name not in table.features]:
        raise UsageError(
            f"{who}: {table.name} lacks columns that its input reads: {', '.join(missing)[:300]}"
        )
    if tuple(table.classes) != model.classes:
        raise UsageError(
            f"{who}: expected its classes {', '.join(model.classes)[:300]} in {table.name}, got "
            f"{', '.join(table.classes)[:300]}"
        )
    meter = table.meter
    if meter is not None and not set(features) <= set(meter.feature_names):
        meter = None  # a network that reads other columns than the meter's carries no meter
    alike = meter is not None and model.meter is not None and model.meter.agrees(meter, features)
    if meter != model.meter and not alike:  # the new model carries the kept one's meter
        if model.meter is None:
            problem = f"it carries no meter, and {table.name} was metered: train without --input-of"
        else:
            actual = "no meter" if meter is None else "another one"
            problem = (
                f"expected the meter that it carries, {table.name} has {actual}: meter the "
                "captures by its specification"
            )
        raise UsageError(f"{who}: {problem}")
    units = {f.name: (f.unit, f.scale) for f in table.catalogue}
    for field in model.input.fields:
        own = units[field.feature]
        if own != (field.unit, field.scale):
            raise UsageError(
                f"{who}: expected {field.feature} in units of {field.unit or 'nothing'}, "
                f"{field.scale:g} to that of the files; {table.name} has it in "
                f"{own[0] or 'nothing'}, {own[1]:g} to that of the files"
            )
    if table.rules is not None and model.table is not None:
        table_columns, model_columns = table.rules.only(features).columns, model.table.columns
        for name in table_columns.keys() & model_columns.keys():
            if not read_alike(table_columns[name], model_columns[name]):
                raise UsageError(
                    f"{who}: column {name} of {table.name} is read differently: expected "
                    f"{model_columns[name].to_dict()}, got {table_columns[name].to_dict()}"[:500]
                    + "; read both tables by one columns.toml (--description)"
                )
    return model.input


def read_alike(rule: ColumnRule, other: ColumnRule, *, values: bool = True) -> bool:
    """Whether two rules give the same integer for a cell that is not blank.

    Args:
        rule: a rule.
        other: another rule.
        values: whether the texts of a category count as well.
    """
    texts = ("values", "buckets", "indicators")
    parts = ("kind", "unit", "scale", "negative", *(texts if values else ()))
    return all(getattr(rule, part) == getattr(other, part) for part in parts)
