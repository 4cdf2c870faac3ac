# SPDX-License-Identifier: Apache-2.0
"""The learner of sum-product networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic.families.spn.settings import SpnTraining
from n3ic.runs.learner import Learned, Learner, refuse_class_weight

if TYPE_CHECKING:
    from n3ic.data.table import FlowTable
    from n3ic.model.inputs import InputSpec
    from n3ic.runs.experiment_spec import Experiment
    from n3ic.runs.progress import TrainingProgress
    from n3ic.runs.training_rows import Prepared
    from n3ic.training.baselines import Prediction


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

        refuse_class_weight(experiment.recipe)
        names = candidates(experiment.table, experiment.recipe)
        anomaly = self.unlearned(experiment)
        learned = rows if anomaly is None else rows.rows((rows.label != anomaly).nonzero()[0])
        spec = bin_fields(learned, names, experiment.recipe.settings)
        return spec, chi2_scores({n: rows.features[n] for n in names}, rows.label)

    def train(self, prepared: Prepared, progress: TrainingProgress) -> Learned:
        """Train a network of normal flows, or of each class."""
        from n3ic.families.spn.train import train_spn

        experiment, rows, validation = prepared.experiment, prepared.train, prepared.validation
        model = train_spn(
            rows.bits,
            rows.label,
            (validation.bits, validation.label),
            prepared.spec.with_rates(rows.bits),
            tuple(experiment.table.classes),
            experiment.recipe.settings,
            anomaly=self.unlearned(experiment),
            seed=experiment.seed,
            name=experiment.name,
            provenance=experiment.provenance,
            stage=progress.stage,
        )
        return Learned(model, prepared)

    def baselines(self, prepared: Prepared) -> Iterator[Prediction]:
        """Run anomaly detectors, if the network learns from normal rows alone."""
        from n3ic.families.spn.baselines import unsupervised_baselines

        experiment, anomaly = prepared.experiment, self.unlearned(prepared.experiment)
        if anomaly is not None:
            share, validation = experiment.recipe.settings.false_positives, prepared.validation
            yield from unsupervised_baselines(
                prepared.train, validation, prepared.test, anomaly, share, experiment.seed
            )


LEARNER = SpnLearner()
