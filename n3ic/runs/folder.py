# SPDX-License-Identifier: Apache-2.0
"""Run folders: the model, its metrics, the options that reproduce it, and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier
from n3ic.model.load import load_model
from n3ic.util.display import Displayed, TextTable, View, facts, listed
from n3ic.util.markdown import percent

METRICS = "metrics.json"
METRICS_VERSION = 1
MODEL = "model.n3ic"
OPTIONS = "options.json"
FIGURES = {
    "accuracy": "accuracy",
    "accuracy_unseen": "deduplicated",
    "macro_f1": "macro F1",
    "fpr": "FPR",
    "roc_auc": "ROC AUC",
    "average_precision": "PR AUC",
}


@dataclass(frozen=True, repr=False)
class Run(Displayed):
    """A run folder.

    Attributes:
        path: the folder.
        metrics: the content of ``metrics.json``.
        models: model files, by task; the task of a single network is empty.
    """

    path: Path
    metrics: Mapping[str, Any]
    models: Mapping[str, Path]

    def predict(self, flows: Any, **how: Any) -> Any:
        """Classify flows by the run's network; see :func:`n3ic.predict`.

        Raises:
            UsageError: the run holds several networks.
        """
        from n3ic.dataframes import predict_flows

        if len(self.models) != 1:
            raise UsageError(f"{self.path} holds {len(self.models)} networks: name one model file")
        return predict_flows(load_model(next(iter(self.models.values()))), flows, **how)

    @property
    def figures(self) -> TextTable:
        """Figures of merit on the test rows, of the network and of its baselines."""
        networks = {"test": _part(self.metrics, "test"), **_part(self.metrics, "baselines")}
        rows = []
        for name, figures in networks.items():
            cells = figure_cells(figures)
            rows.append(("network" if name == "test" else name.replace("_", " "), *cells))
        return TextTable("test rows", ("", *FIGURES.values()), tuple(rows))

    @property
    def columns(self) -> TextTable:
        """Each column of the data: used, in doubt or left out, and why."""
        uses = self.metrics.get("columns")
        rows = tuple(
            tuple(str(of.get(key, "")) for key in ("name", "use", "why"))
            for of in (uses if isinstance(uses, list) else ())
        )
        return TextTable("columns of the data", ("column", "", "why"), rows, left=3)

    def view(self) -> View:
        """The title and the tables that are displayed."""
        data = _part(self.metrics, "data")
        case, recipe = (self.metrics.get(k, "") for k in ("use_case", "recipe"))
        accuracy = _share(_part(self.metrics, "test"), "accuracy")
        several = f"{len(self.models)} networks" if len(self.models) > 1 else ""
        parts = (f"recipe {recipe}" if recipe else "", several, accuracy and f"accuracy {accuracy}")
        return View(
            f"{self.path}: {', '.join(filter(None, (str(case), *parts)))}",
            (
                self.figures,
                facts(
                    "run",
                    [
                        ("data", data.get("name")),
                        ("synthetic", data.get("synthetic")),
                        ("protocol", self.metrics.get("protocol")),
                        ("seed", self.metrics.get("seed")),
                        ("models", listed([str(p) for p in self.models.values()])),
                    ],
                ),
            ),
        )


def _part(metrics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a file's content; empty if it is missing or something else."""
    part = metrics.get(name)
    return part if isinstance(part, Mapping) else {}


def figure_cells(figures: object) -> tuple[str, ...]:
    """A classifier's part of the metrics as text, one cell for each of ``FIGURES``."""
    return tuple(_share(figures, key) for key in FIGURES)


def _share(figures: object, name: str) -> str:
    value = figures.get(name) if isinstance(figures, Mapping) else None
    return percent(value) if isinstance(value, int | float) else ""


def load_metrics(run: str | Path) -> dict[str, Any]:
    """The metrics of a run folder.

    Raises:
        UsageError: the folder is not a run, or its version is not supported.
    """
    path = Path(run) / METRICS
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{run} is not a run: {METRICS}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    if not isinstance(data, dict) or "version" not in data:
        raise UsageError(f"{path} is not the metrics of an n3ic run")
    if data["version"] != METRICS_VERSION:
        version = repr(data["version"])[:100]
        raise UsageError(f"{path}: version {version}, this n3ic reads {METRICS_VERSION}")
    return data


def newest_run(root: str | Path = "runs") -> Path:
    """The run below ``root`` that was written last.

    Raises:
        UsageError: there is no run below ``root``.
    """
    # Hidden folders are runs that are still being written.
    files = [p for p in Path(root).glob(f"*/{METRICS}") if not p.parent.name.startswith(".")]
    if not files:
        raise UsageError(
            f"there is no run below {root}/: train one (n3ic train anomaly) or name a --model"
        )
    return max(files, key=lambda p: (p.stat().st_mtime_ns, str(p))).parent  # ties: last name


def models_of(path: str | Path) -> dict[str, Path]:
    """Model files of a run folder by task, or of one model file.

    Raises:
        UsageError: the folder holds no model.
    """
    place = Path(path)
    if not place.is_dir():
        return {"": place}
    if (place / MODEL).is_file():
        return {"": place / MODEL}
    several = {p.stem: p for p in sorted((place / "models").glob("*.n3ic"))}
    if not several:
        raise UsageError(f"{place} holds no model: expected {MODEL} or models/*.n3ic")
    return several


def open_models(
    path: str | Path | None,
) -> tuple[Path, dict[str, Classifier], dict[str, Any] | None]:
    """The models of a run or of a model file, with the run's metrics if there are any.

    Args:
        path: a run folder or a model file; None for the newest run.

    Raises:
        UsageError: there is no run.
        ModelError: a model is damaged.
    """
    source = newest_run() if path is None else Path(path)
    models = {task: load_model(p) for task, p in models_of(source).items()}
    folder = source if source.is_dir() else source.parent
    metrics = load_metrics(folder) if (folder / METRICS).is_file() else None
    return source, models, metrics
