# SPDX-License-Identifier: Apache-2.0
"""The data of a request: its use case's tables, and the protocols that they allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from n3ic.data.row_sample import row_sample
from n3ic.data.split import SplitProtocol, protocols_of
from n3ic.data.table import FlowTable
from n3ic.errors import DataError, UsageError
from n3ic.model.classifier import Classifier
from n3ic.options import OptionValue, parse_options
from n3ic.runs.column_uses import ColumnUse, column_uses
from n3ic.runs.experiment_spec import Experiment, SiteBudget
from n3ic.runs.progress import TrainingProgress
from n3ic.training.input_choice import candidates
from n3ic.training.kept_input import kept_input
from n3ic.training.recipe import Recipe
from n3ic.usecases.base import UseCase, use_case
from n3ic.usecases.request import TrainRequest
from n3ic.util.names import path_component


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The data of a request.

    Attributes:
        case: the use case.
        options: its own options, defaults included.
        table: the whole table.
        tasks: table of each network, by name; the name of a single network is empty.
        protocols: the possible protocols; the networks of the first are kept.
        input_models: the networks whose input is kept, by task; empty if inputs are chosen.
    """

    case: UseCase
    options: Mapping[str, OptionValue]
    table: FlowTable = field(repr=False)
    tasks: Mapping[str, FlowTable] = field(repr=False)
    protocols: tuple[SplitProtocol, ...]
    input_models: Mapping[str, Classifier] = field(default_factory=dict, repr=False)

    @property
    def n_classes(self) -> int:
        """Largest number of classes of a table."""
        return max(len(rows.classes) for rows in self.tasks.values())

    def column_uses(self, recipe: Recipe) -> tuple[ColumnUse, ...]:
        """What the training does with each column of the first network's table.

        Raises:
            UsageError: a column does not exist, or every column is left out.
        """
        task, table = next(iter(self.tasks.items()))
        model = self.input_models.get(task)
        chosen = model.input.features if model is not None else candidates(table, recipe)
        return column_uses(table, chosen, [c for c in recipe.columns if c in table.features])

    def experiments(
        self,
        recipe: Recipe,
        budget: int | None = None,
        rivals: tuple[Recipe, ...] = (),
        sites: SiteBudget | None = None,
    ) -> dict[str, Experiment]:
        """The experiment of each task, under the protocol whose networks are kept.

        Args:
            recipe: how the model is trained.
            budget: largest size of the model in bytes; None for no bound.
            rivals: recipes of other families within the budget.
            sites: bound on LUT sites; None for no bound.

        Raises:
            DataError: a table lacks the class that the use case detects.
        """
        return {
            task: Experiment(
                rows,
                recipe,
                self.protocols[0],
                name=f"{self.case.name}-{task}" if task else self.case.name,
                positive=_positive(self.case, rows),
                keeps=self.input_models.get(task),
                budget=budget or 0,
                rivals=rivals,
                sites=sites,
            )
            for task, rows in self.tasks.items()
        }


def read_training_data(request: TrainRequest, progress: TrainingProgress) -> TrainingData:
    """Read the data of a request.

    Args:
        request: the use case, the data and the protocol.
        progress: receives messages on the way.

    Raises:
        UsageError: a name or option is unknown.
        DataError: the data cannot be read or split.
    """
    case = use_case(request.use_case)
    options = parse_options(case.options, request.options, case.name)
    request.chosen_recipe(case)  # reports a mistake before the data are read
    progress.stage("loading data")
    table = request.table
    if table is None:
        table = _loaded(case, request, options, progress)
    tasks = case.tasks(table, options)
    if not tasks:
        raise UsageError(f"{case.name}: the options leave no network to train")
    if set(tasks) != {""} and not case.group:
        raise UsageError(
            f"the use case {case.name} has several networks but no name for one (group)"
        )
    if wrong := [task for task in tasks if task and path_component(task) != task]:
        raise UsageError(  # models, plots and kept inputs are found by these names
            f"the use case {case.name}: expected names of networks of letters, digits, '.', '_' "
            f"and '-', got {wrong[0]!r}"
        )
    protocols = _protocols(case, table, request.protocol)
    return TrainingData(case, options, table, tasks, protocols, _input_models(request, tasks))


def _loaded(
    case: UseCase,
    request: TrainRequest,
    options: Mapping[str, OptionValue],
    progress: TrainingProgress,
) -> FlowTable:
    """The table of the use case: of all rows of its files, or of rows that are drawn from them."""
    if request.rows is None or request.data is None:
        return case.load(request.data, request.dataset, options, progress.note)
    progress.stage(f"drawing {request.rows:,} rows")
    several = isinstance(request.data, list)
    with row_sample(request.data, request.rows, request.seed) as sample:
        if sample.rows == sample.of:  # the files as they are
            return case.load(request.data, request.dataset, options, progress.note)
        data: Any = sample.paths if several else sample.paths[0]
        try:
            table = case.load(
                data,
                request.dataset,
                options,
                lambda line: progress.note(sample.as_given(line)),
            )
        except DataError as error:
            raise DataError(
                f"{sample.as_given(str(error))} (of {sample.rows:,} drawn rows)"
            ) from error
        note = f"{sample.rows:,} of {sample.of:,} rows, drawn at random (seed {request.seed})"
        return replace(
            table,
            sources=tuple(replace(s, path=sample.as_given(s.path)) for s in table.sources),
            notes=(*map(sample.as_given, table.notes), note),
        )


def _input_models(request: TrainRequest, tasks: Mapping[str, FlowTable]) -> dict[str, Classifier]:
    """The network whose input each task keeps; empty if inputs are chosen.

    Raises:
        UsageError: a task has no such network, or its input does not fit the table.
    """
    if not request.input_models:
        return {}
    names = {task: path_component(task) if task else "" for task in tasks}
    if len(request.input_models) == 1 and len(names) == 1:  # single networks need no equal names
        names = dict.fromkeys(names, next(iter(request.input_models)))
    if missing := [task for task, name in names.items() if name not in request.input_models]:
        names_text = ", ".join(filter(None, request.input_models)) or "a single network"
        raise UsageError(
            f"--input-of {request.input_of}: expected a network for each of "
            f"{', '.join(missing) or 'a single one: name its file'}; it holds {names_text}"
        )
    models = {task: request.input_models[name] for task, name in names.items()}
    for task, model in models.items():
        kept_input(tasks[task], model)
    return models


def _protocols(
    case: UseCase, table: FlowTable, protocol: SplitProtocol | None
) -> tuple[SplitProtocol, ...]:
    """The protocols that the table allows; the networks of the first are kept.

    Raises:
        DataError: the table does not allow the wanted protocol.
    """
    allowed = protocols_of(table)
    main = protocol or (case.protocol if case.protocol in allowed else "random")
    if main not in allowed:
        raise DataError(
            f"protocol {main!r} is not possible with {table.name}; it allows {', '.join(allowed)}"
        )
    return (main, *(p for p in allowed if p != main))


def _positive(case: UseCase, table: FlowTable) -> int | None:
    """Index of the class whose detection is counted; None if the use case names none.

    Raises:
        DataError: the table has no such class.
    """
    if not case.positive:
        return None
    if case.positive not in table.classes:
        raise DataError(
            f"{case.name} detects the class {case.positive!r}, which {table.name} does not have; "
            f"its classes are {', '.join(table.classes)}"
        )
    return table.classes.index(case.positive)
