# SPDX-License-Identifier: Apache-2.0
"""The figures of a run, as data for ``metrics.json`` and as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from n3ic import __version__
from n3ic.data.split import duplicate_share
from n3ic.data.table import FlowTable
from n3ic.evaluation.importance import FeatureImportance
from n3ic.evaluation.plugin import tables_of
from n3ic.model.classifier import Classifier, family_text
from n3ic.model.network import BinaryModel
from n3ic.runs.column_uses import columns_table
from n3ic.runs.experiment import TrainingResult
from n3ic.runs.folder import FIGURES, METRICS_VERSION
from n3ic.util.display import TextTable
from n3ic.util.markdown import escaped, percent, table


def _single(result: TrainingResult) -> dict[str, Any]:
    return {
        "test": result.test.to_dict(),
        "classes": result.test.of_classes(result.model.classes),
        "validation": result.validation.to_dict(),
        "train": {"accuracy": result.train_accuracy},
        "baselines": {
            name: e.to_dict() | {"bytes": result.baseline_bytes.get(name)}
            for name, e in result.baselines.items()
        },
        "candidates": [{**asdict(c), "bytes": c.bytes} for c in result.candidates],
        "rows": dict(result.rows),
        "twin_share": result.twin_share,
        "no_better_than": result.no_better_than,
        "notes": list(result.notes),
        "epochs": len(result.history),
    }


def _identity(model: Classifier) -> dict[str, Any]:
    return {"family": model.family, "shape": list(model.shape), "sha256": model.digest}


def model_text(metrics: Mapping[str, Any]) -> str:
    """The family of a run's models in words."""
    return family_text(metrics.get("model", {}).get("family", BinaryModel.family))


def memory_of(model: Classifier) -> dict[str, int]:
    """Bytes of a model by part and in total; of a binary network also its weights as float32."""
    sizes = {**model.memory, "total_bytes": model.total_bytes}
    if isinstance(model, BinaryModel):
        sizes["float_weight_bytes"] = model.float_weight_bytes
    return sizes


def metrics_of(
    use_case: str,
    group: str,
    table: FlowTable,
    seed: int,
    every: Mapping[str, Mapping[str, TrainingResult]],
    repeated: Sequence[Mapping[str, TrainingResult]],
    importance: Mapping[str, Sequence[FeatureImportance]],
) -> dict[str, Any]:
    """The content of ``metrics.json`` without the use case's own entries.

    Args:
        use_case: name of the use case.
        group: its word for one of several networks; empty for a single network.
        table: the training data.
        seed: the first seed.
        every: results by protocol and task; the networks of the first protocol are kept.
        repeated: results of each further seed, by task.
        importance: importance of each network's features, by task.
    """
    main, results = next(iter(every.items()))
    first = next(iter(results.values()))
    positive = None if first.positive is None else first.model.classes[first.positive]
    out: dict[str, Any] = {
        "version": METRICS_VERSION,
        "use_case": use_case,
        "recipe": first.recipe.name,
        "augment": float(first.model.provenance.get("augment", 1)),
        "protocol": main,
        "seed": seed,
        "positive": positive,
        "tool": f"n3ic {__version__}",
        "data": {
            "name": table.name,
            "synthetic": table.synthetic,
            "sha256": table.sha256,
            "rows": len(table),
            "duplicate_share": duplicate_share(table),
            "sources": [
                {"path": s.path, "rows": s.rows, "identity": s.identity} for s in table.sources
            ],
            "notes": list(table.notes),
        },
    }
    if set(results) == {""}:
        out |= _single(first)
        out["model"] = _identity(first.model)
        out["memory"] = memory_of(first.model)
        out["feature_scores"] = dict(first.feature_scores)
        out["importance"] = [asdict(f) for f in importance[""]]
        out["protocols"] = {p: _single(r[""]) for p, r in every.items()}
        values = [r[""].test for r in (results, *repeated)]
        if repeated:
            out["seeds"] = {
                "count": len(values),
                "test": {key: _spread(getattr(v, key) for v in values) for key in FIGURES},
            }
        return out
    out[group] = {
        task: _single(r)
        | {
            "model": _identity(r.model),
            "memory": memory_of(r.model),
            "importance": [asdict(f) for f in importance[task]],
        }
        for task, r in results.items()
    }
    sizes = [memory_of(r.model) for r in results.values()]  # a budget may keep several families
    out["memory"] = {
        key: sum(size.get(key, 0) for size in sizes) for key in {k: 0 for of in sizes for k in of}
    }
    out["test"] = _medians(results)
    out["protocols"] = {p: {"test": _medians(r)} for p, r in every.items()}
    out["baselines"] = {
        name: {
            key: float(np.median([getattr(r.baselines[name], key) for r in results.values()]))
            for key in ("accuracy", "macro_f1")
        }
        for name in first.baselines
    }
    if repeated:
        medians = [_medians(r) for r in (results, *repeated)]
        out["seeds"] = {
            "count": len(medians),
            "test": {key: _spread(m[key] for m in medians) for key in medians[0]},
        }
    return out


def warnings_of(metrics: Mapping[str, Any], group: str = "") -> list[str]:
    """Remarks on the baselines, and on networks that are no better than one constant answer."""
    networks = metrics[group] if group and group in metrics else {"": metrics}
    noted = [
        f"{f'{task}: ' if task else ''}{note}"
        for task, figures in networks.items()
        for note in figures.get("notes", ())
    ]
    return noted + [
        f"{f'{task}: ' if task else ''}no better than always saying {figures['no_better_than']} "
        f"({percent(figures['test']['accuracy'])} of the test rows); give it more bits, more "
        "neurons or columns that tell more; --class-weight and --false-alarms find more of "
        "a rare class"
        for task, figures in networks.items()
        if figures.get("no_better_than")
    ]


def candidate_table(metrics: Mapping[str, Any]) -> TextTable | None:
    """The candidates within a budget; None if the file lists none, or is malformed."""
    try:
        candidates = metrics.get("candidates") or ()
        if not candidates:
            return None
        if candidates[0].get("sites"):
            return _within_sites(candidates)
        rows = tuple(
            (
                *(str(of["name"]), f"{of['bytes']:,}"),
                *(percent(of["accuracy"]), percent(of["balanced"])),
                "exported" if of["exported"] else "no target takes it",
                "kept" if of["kept"] else "",
            )
            for of in candidates
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    head = ("validation rows", "bytes", "accuracy", "balanced", "", "")
    return TextTable("within the budget of bytes", head, rows)


def _within_sites(candidates: Sequence[Mapping[str, Any]]) -> TextTable:
    """The candidates within a budget of LUT sites, with the values that chose their sizes."""
    parts = tuple(candidates[0]["sites"])
    rows = tuple(
        (
            *(str(of["name"]), values_text(of["values"])),
            *(f"{of['sites'][part]:,}" for part in parts),
            *(f"{of['bytes']:,}", percent(of["accuracy"], 2), percent(of["balanced"], 2)),
            "kept" if of["kept"] else "" if of["fits"] else "too large",
        )
        for of in candidates
    )
    heads = (f"sites: {part}" for part in parts)
    head = ("validation rows", "shape", *heads, "bytes", "accuracy", "balanced", "")
    return TextTable("within the budget of LUT sites (estimated)", head, rows)


def values_text(values: Mapping[str, Any]) -> str:
    """Values of a recipe in a line, such as ``tables 93, table bits 5``."""
    return ", ".join(
        f"{name.replace('_', ' ')} "
        + ("-".join(map(str, value)) if isinstance(value, tuple | list) else str(value))
        for name, value in values.items()
    )


CLASS_HEAD = ("class", "rows", "share", "precision", "recall")


def class_rows(classes: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """One row of text per class.

    Args:
        classes: by name, from :meth:`~n3ic.evaluation.metrics.Evaluation.of_classes`.
    """
    every = sum(of["rows"] for of in classes.values()) or 1
    return [
        [
            name,
            f"{of['rows']:,}",
            percent(of["rows"] / every),
            percent(of["precision"]),
            percent(of["recall"]),
        ]
        for name, of in classes.items()
    ]


PACKET_HEAD = ("decided at packet", "test flows", "accuracy", "macro F1")


def packet_rows(points: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """One row of text per point of :meth:`~n3ic.evaluation.held_out.HeldOut.by_packet`."""
    keys = ("accuracy", "macro_f1")
    return [
        [str(of["packet"] or "end"), f"{of['flows']:,}", *(percent(of[k]) for k in keys)]
        for of in points
    ]


def _medians(results: Mapping[str, TrainingResult]) -> dict[str, float]:
    return {
        key: float(np.median([getattr(r.test, key) for r in results.values()]))
        for key in ("accuracy", "macro_f1")
    }


def _spread(values: Iterable[float | None]) -> dict[str, Any]:
    numbers = [float(v) for v in values if v is not None]
    if not numbers:
        return {"mean": None, "std": None, "values": []}
    deviation = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0  # of a sample
    return {"mean": float(np.mean(numbers)), "std": deviation, "values": numbers}


def summary_markdown(metrics: Mapping[str, Any], group: str = "") -> str:
    """The run's figures as a Markdown page."""
    data = metrics["data"]
    kind = " (synthetic)" if data["synthetic"] else ""
    lines = [
        f"# {metrics['use_case']}: recipe {metrics['recipe']}, {metrics['protocol']} split",
        "",
        f"Data: {data['name']}{kind}, {data['rows']:,} rows, "
        f"{percent(data['duplicate_share'])} of them repeat another. Seed {metrics['seed']}.",
        "",
    ]
    if (most := metrics.get("augment", 1)) > 1:
        lines += [
            "Each training row was also trained on with its times multiplied, and its rates "
            f"divided, by a random factor of 1/{most:g} to {most:g}.",
            "",
        ]
    if data.get("notes"):
        lines += [*(f"- {escaped(line)}" for line in data["notes"]), ""]
    if warned := warnings_of(metrics, group):
        lines += [*(f"- **{escaped(line)}**" for line in warned), ""]
    if uses_table := columns_table(metrics.get("columns", ())):
        lines += [*table(uses_table.head, uses_table.rows, "l"), ""]
    protocols = metrics["protocols"].items()
    if group and group in metrics:
        baselines = ("majority", "float_mlp", "hist_gradient_boosting")
        lines += table(
            [group, "accuracy", "macro F1", "majority", "float MLP", "boosting"],
            (
                [
                    task,
                    percent(m["test"]["accuracy"]),
                    percent(m["test"]["macro_f1"]),
                    *(percent(m["baselines"].get(n, {}).get("accuracy")) for n in baselines),
                ]
                for task, m in {**metrics[group], "**median**": metrics}.items()
            ),
        )
        medians = ("accuracy", "macro_f1")
        lines += ["", *_figures("protocol", "median ", medians, protocols)]
        return "\n".join(lines) + "\n"
    if metrics["positive"] is not None:
        counted = f"FPR and ROC AUC count the detection of class {escaped(metrics['positive'])}."
        lines += [counted, ""]
    points = metrics.get("by_packet", ())
    classifiers = {f"**{model_text(metrics)}**": metrics["test"], **metrics["baselines"]}
    if candidates := candidate_table(metrics):
        lines += [*table(candidates.head, candidates.rows), ""]
    sizes = {n: m.get("bytes") for n, m in metrics["baselines"].items()}
    lines += [
        *_figures(
            "classifier", "", tuple(FIGURES), ((n, {"test": m}) for n, m in classifiers.items())
        ),
        "",
        *table(list(CLASS_HEAD), class_rows(metrics["classes"])),
        "",
        *([*table(list(PACKET_HEAD), packet_rows(points)), ""] if points else []),
        *(x for t in tables_of(metrics) for x in (t.title, "", *table(t.head, t.rows), "")),
        *(f"{n}: {size:,} B packed\n" for n, size in sizes.items() if size),
        f"{percent(metrics['twin_share'])} of the test rows are equal to some training row.",
        "",
        *_figures("protocol", "", tuple(FIGURES), protocols),
        "",
        *table(["memory", "bytes"], ([n, f"{size:,}"] for n, size in metrics["memory"].items())),
    ]
    return "\n".join(lines) + "\n"


def _figures(
    row_name: str, prefix: str, keys: Sequence[str], rows: Iterable[tuple[str, Mapping[str, Any]]]
) -> list[str]:
    """A table of figures on the test rows."""
    head = [row_name, *(prefix + FIGURES[key] for key in keys)]
    return table(head, ([name, *(percent(m["test"].get(k)) for k in keys)] for name, m in rows))
