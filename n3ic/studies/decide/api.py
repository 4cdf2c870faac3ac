# SPDX-License-Identifier: Apache-2.0
"""The function ``n3ic.decide``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from n3ic.errors import in_python, needed
from n3ic.training.recipe_values import RecipeValues

if TYPE_CHECKING:
    from n3ic.meter.labels import Labels
    from n3ic.model.meter_spec import MeterSpec
    from n3ic.runs.progress import TrainingProgress
    from n3ic.studies.decide.comparison import Decisions


@in_python()
@needed("n3ic.decide")
def decide(
    captures: str | Path | Sequence[str | Path],
    labels: Labels | str | Path,
    *,
    packets: Sequence[int | Literal["end"]] = (1, 2, 4, 8, 16, "end"),
    spec: MeterSpec | str | Path | None = None,
    positive: str = "",
    least: int = 50,
    recipe: str = "default",
    protocol: Literal["random", "conversation"] = "random",
    seed: int = 0,
    seeds: int = 1,
    jobs: int | None = None,
    out: str | Path = "runs/decide",
    replace: bool = False,
    progress: TrainingProgress | None = None,
    **values: Unpack[RecipeValues],
) -> Decisions:
    """Compare accuracy by the packet at which flows are decided.

    Labelled captures are metered, and a network is trained for each number of packets, on the same
    flows with the same recipe and seeds. One more network decides at all of these packets.

    Args:
        captures: pcap and pcapng files, plain or packed, and folders of them.
        labels: labels of the flows, or a CSV file of them.
        packets: packets to decide at, from 1; ``"end"`` for the end of the flow.
        spec: the meter's specification, or a file that holds it; None for the standard meter.
        positive: a class to tell from all others; empty to tell all classes apart.
        least: classes of fewer flows are left out.
        recipe: a recipe of the use case ``flows``.
        protocol: how the flows are split.
        seed: seed of all random choices.
        seeds: number of seeds for mean and deviation, from ``seed`` on.
        jobs: number of captures metered at once; None for all cores.
        out: the folder to write.
        replace: replace an earlier folder of the same kind.
        progress: callbacks that get the progress of the training.
        **values: any value of the recipe, such as ``epochs=3``; see :func:`n3ic.train`.

    Returns:
        A point per number of packets, waiting times in microseconds, and the folder.

    Raises:
        UsageError: a name or a value is unknown, or the folder exists.
        DataError: a capture or the labels cannot be read, or too few flows are labelled.
        MissingDependencyError: libpcap, a C compiler or PyTorch is missing.
    """
    from n3ic.data.user_table import OWN
    from n3ic.meter.labels import read_labels
    from n3ic.meter.spec_file import read_spec
    from n3ic.meter.standard import standard_spec
    from n3ic.runs.progress import TrainingProgress
    from n3ic.studies.decide.comparison import AT_END, DecisionRequest, compare_decisions
    from n3ic.usecases.arguments import request_of
    from n3ic.usecases.base import use_case
    from n3ic.usecases.request import TrainRequest

    training = TrainRequest(**request_of({"use_case": OWN, "recipe": recipe}, values))
    request = DecisionRequest(
        captures=[captures] if isinstance(captures, str | Path) else captures,
        labels=read_labels(labels, "table") if isinstance(labels, str | Path) else labels,
        spec=read_spec(spec) if isinstance(spec, str | Path) else spec or standard_spec(),
        packets=tuple(AT_END if n == "end" else n for n in packets),
        recipe=training.chosen_recipe(use_case(OWN)),
        out=Path(out),
        positive=positive,
        least=least,
        protocol=protocol,
        seed=seed,
        seeds=seeds,
        replace=replace,
        jobs=jobs,
    )
    return compare_decisions(request, progress or TrainingProgress())
