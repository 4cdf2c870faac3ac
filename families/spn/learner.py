# SPDX-License-Identifier: Apache-2.0
"""The learner of sum-product networks, and its settings in a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from n3ic.errors import UsageError
from n3ic.runs.learner import Learned, Learner

if TYPE_CHECKING:
    from n3ic.data.table import FlowTable
    from n3ic.model.inputs import InputSpec
    from n3ic.runs.experiment_spec import Experiment
    from n3ic.runs.progress import TrainingProgress
    from n3ic.runs.training_rows import Prepared
    from n3ic.training.baselines import Prediction


@dataclass(frozen=True)
class SpnTraining:
    """How a sum-product network is learned and folded.

    Attributes:
        spn_task: ``anomaly`` learns normal flows, and calls a flow less likely than a threshold an
            anomaly; ``classes`` learns each class and answers the likeliest.
        leaf_cuts: maximum number of cuts of a feature.
        min_rows: number of rows below which features count as independent; 0 for a fiftieth of all.
        dependence: mutual information, in bits, above which two features depend on each other.
        clusters: maximum number of terms of a sum.
        depth: maximum number of sums from the root to a leaf.
        smoothing: rows added to each bin, so that no bin is impossible.
        arithmetic: ``log`` or ``linear``.
        error: largest allowed distance of a score from the real one, in bits of the logarithm or as
            a probability; 0 for the defaults, 1 bit and 1e-7.
        false_positives: share of the normal validation rows that the threshold may call anomalies.
    """

    spn_task: Literal["anomaly", "classes"] = "anomaly"
    leaf_cuts: int = 7
    min_rows: int = 0
    dependence: float = 0.15
    clusters: int = 4
    depth: int = 5
    smoothing: float = 0.1
    arithmetic: Literal["log", "linear"] = "log"
    error: float = 0.0
    false_positives: float = 0.05

    def __post_init__(self) -> None:
        def require(ok: bool, name: str, rule: str) -> None:
            if not ok:
                raise UsageError(f"{name} must be {rule}, got {getattr(self, name)!r}")

        require(self.spn_task in ("anomaly", "classes"), "spn_task", "anomaly or classes")
        require(1 <= self.leaf_cuts <= 255, "leaf_cuts", "in 1..255")
        require(self.min_rows >= 0, "min_rows", "0 or more")
        require(self.dependence >= 0, "dependence", "0 or more")
        require(2 <= self.clusters <= 64, "clusters", "in 2..64")
        require(0 <= self.depth <= 64, "depth", "in 0..64")
        require(0 < self.smoothing <= 1000, "smoothing", "in (0, 1000]")
        require(self.arithmetic in ("log", "linear"), "arithmetic", "log or linear")
        require(self.error >= 0, "error", "0 or more")
        require(0 <= self.false_positives < 1, "false_positives", "in [0, 1)")

    @property
    def largest_error(self) -> float:
        """The largest allowed error, as given or by default."""
        return self.error or (1.0 if self.arithmetic == "log" else 1e-7)


class SpnLearner(Learner):
    """Trains sum-product networks: of normal flows, or of each class."""

    name: ClassVar[str] = "spn"
    summary: ClassVar[str] = "sum-product networks: how likely a flow is"
    settings: ClassVar[type] = SpnTraining
    budgeted: ClassVar[bool] = False

    def unlearned(self, experiment: Experiment) -> int | None:
        """Return the class that is not learned, the anomaly's; None if every class is."""
        from n3ic.evaluation.metrics import counted_class

        if experiment.recipe.settings.spn_task == "classes":
            return None
        return counted_class(len(experiment.table.classes), experiment.positive)

    def boosts(self, experiment: Experiment) -> bool:
        """Return False: neither the bins nor the network use boosted trees."""
        return False

    def choose_input(
        self, experiment: Experiment, rows: FlowTable, trees: Any
    ) -> tuple[InputSpec, dict[str, float]]:
        """Choose the bins of every feature from the rows that are learned."""
        from n3ic.families.spn.train import bin_fields
        from n3ic.training.input_bits import chi2_scores
        from n3ic.training.input_choice import candidates

        if not experiment.recipe.training.for_accuracy:
            raise UsageError(
                "class_weight and false_alarms apply to binary networks only; use false_positives "
                "for a sum-product network"
            )
        names = candidates(experiment.table, experiment.recipe)
        anomaly = self.unlearned(experiment)
        learned = rows if anomaly is None else rows.rows((rows.label != anomaly).nonzero()[0])
        spec = bin_fields(learned, names, experiment.recipe.settings)
        return spec, chi2_scores({n: rows.features[n] for n in names}, rows.label)

    def train(self, prepared: Prepared, progress: TrainingProgress) -> Learned:
        """Train a network of normal flows, or of each class."""
        from n3ic.families.spn.train import train_spn

        this, rows, held = prepared.experiment, prepared.train, prepared.validation
        model = train_spn(
            rows.bits,
            rows.label,
            (held.bits, held.label),
            prepared.spec.with_rates(rows.bits),
            tuple(this.table.classes),
            this.recipe.settings,
            anomaly=self.unlearned(this),
            seed=this.seed,
            name=this.name,
            provenance=this.provenance,
            stage=progress.stage,
        )
        return Learned(model, prepared)

    def baselines(self, prepared: Prepared) -> Iterator[Prediction]:
        """Run anomaly detectors, if the network learns from normal rows alone."""
        from n3ic.families.spn.baselines import unsupervised_baselines

        this, anomaly = prepared.experiment, self.unlearned(prepared.experiment)
        if anomaly is not None:
            share, held = this.recipe.settings.false_positives, prepared.validation
            yield from unsupervised_baselines(
                prepared.train, held, prepared.test, anomaly, share, this.seed
            )


LEARNER = SpnLearner()
