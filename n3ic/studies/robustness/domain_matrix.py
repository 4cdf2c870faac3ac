# SPDX-License-Identifier: Apache-2.0
"""``n3ic evaluate --domains``: models of one site on the flows of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic.errors import UsageError
from n3ic.evaluation.held_out import HeldOut
from n3ic.evaluation.plugin import EvaluationPlugin
from n3ic.options import Option, Options
from n3ic.util.display import TextTable
from n3ic.util.plain_data import from_plain

if TYPE_CHECKING:
    from n3ic.studies.robustness.domains import DomainStudy


class DomainMatrix(EvaluationPlugin):
    """Models of each site on every site, without labels of the new site and with some."""

    name: ClassVar[str] = "domains"
    summary: ClassVar[str] = "models of one site on the flows of another"
    study_option: ClassVar[str] = "domains"
    options: ClassVar[tuple[Option, ...]] = (
        Option("domains", "sites to train on and to test on, separated by commas: files, folders, "
               "data sets with a sample, or DATASET:PATH; --model names a run with the recipe", ""),
        Option("label", "with --domains: column of the class in tables of your own", ""),
        Option("positive", "with --domains: classes to detect, all others being benign; patterns "
               "such as 'DoS*' separated by commas", ""),
        Option("benign", "with --domains: classes that are benign, all others being attacks", ""),
        Option("new-labels", "with --domains: numbers of labelled flows of the new site",
               "50,200,1000"),
        Option("seeds", "with --domains: number of seeds, from 0 on", 1, minimum=1, maximum=100),
    )  # fmt: skip

    def study(self, options: Options, source: Path | None) -> Mapping[str, Any]:
        """Compute the matrix.

        Raises:
            UsageError: the sites share no columns or classes, or an option is malformed.
            DataError: a table cannot be read.
        """
        lists = {name: _listed(options[name]) for name in ("domains", "positive", "benign")}
        study = study_domains(
            lists["domains"],
            label=str(options["label"]),
            positive=lists["positive"],
            benign=lists["benign"],
            new_labels=_counts(str(options["new-labels"])),
            seeds=int(options["seeds"]),
            source=source,
        )
        return study.to_dict()

    def requested_figures(
        self, sample: HeldOut, options: Options, source: Path, data: Path | None
    ) -> Mapping[str, Any]:
        """Refuse options that have no effect without ``--domains``."""
        raise UsageError("--label, --positive, --benign, --new-labels and --seeds: expected beside "
                         "--domains")  # fmt: skip

    def tables(self, figures: Mapping[str, Any]) -> Sequence[TextTable]:
        """The sites, and a row for each pair of them."""
        from n3ic.studies.robustness.domains import DomainStudy

        return from_plain(DomainStudy, figures).tables


def study_domains(
    sites: Sequence[str],
    *,
    label: str,
    positive: Sequence[str],
    benign: Sequence[str],
    new_labels: Sequence[int],
    seeds: int,
    source: Path | None,
) -> DomainStudy:
    """Compute the matrix of sites; see :func:`n3ic.domains`.

    Raises:
        UsageError: the sites share no columns or classes, or a number is below 1.
        DataError: a table cannot be read, or has too few rows.
    """
    from n3ic.studies.robustness.domain_tables import read_sites, shared_sites
    from n3ic.studies.robustness.domains import AUGMENT, DomainRequest, across_domains
    from n3ic.training.recipes import KILOBYTE
    from n3ic.usecases.config import recipe_of

    shared = shared_sites(read_sites(sites, label), positive, benign)
    recipe = KILOBYTE if source is None else recipe_of(source, len(shared.classes))
    most = recipe.augment if recipe.augment > 1 else AUGMENT
    request = DomainRequest(recipe, (1.0, most), tuple(new_labels), tuple(range(seeds)))
    return across_domains(shared, request)


def _listed(text: object) -> list[str]:
    return [name.strip() for name in str(text).split(",") if name.strip()]


def _counts(text: str) -> tuple[int, ...]:
    if not all(part.isdecimal() and int(part) for part in _listed(text)):
        raise UsageError(
            f"--new-labels {text}: expected numbers from 1 on separated by commas, such as "
            "50,200,1000"
        )
    return tuple(int(part) for part in _listed(text))


EVALUATION = DomainMatrix()
