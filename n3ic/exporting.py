"""Export directories: written whole, self-describing, and proven against the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from n3ic import __version__, plugins
from n3ic.bits import Words
from n3ic.compare import first_difference
from n3ic.errors import (
    ExportError,
    MissingDependencyError,
    UsageError,
    VerifyError,
)
from n3ic.export import Exporter, Figure, Fit, Options, OptionValue, Report
from n3ic.files import new_directory, sha256_file, write_atomic
from n3ic.model import BinaryModel
from n3ic.vectors import verification_vectors

FORMAT = "n3ic-export"
VERSION = 1
MANIFEST = "manifest.json"
VERIFICATION = "verification.json"
_MAX_MANIFEST_BYTES = 16 << 20


@dataclass(frozen=True)
class Verification:
    """The outcome of running an export's artefacts against its model.

    Attributes:
        target: the target's name.
        executor: what ran the artefacts; empty where nothing could run them.
        vectors: how many boundary and random vectors ran.
        rows: how many rows of a table ran besides.
        encoded: how many rows went through the target's own input stage.
        failures: what is wrong, in words; empty where everything is equal.
        missing: the tool that is missing, in words; the artefacts were not run.
        figures: figures of speed that the run gave.
    """

    target: str
    executor: str
    vectors: int
    rows: int = 0
    encoded: int = 0
    failures: tuple[str, ...] = ()
    missing: str = ""
    figures: tuple[Figure, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the artefacts ran and computed the model's scores everywhere."""
        return not self.failures and not self.missing

    def __str__(self) -> str:
        if self.failures:
            return f"{self.target}: FAILED: {'; '.join(self.failures)}"
        if self.missing:
            return f"{self.target}: not run: {self.missing}"
        rows = f" and {self.rows:,} rows" if self.rows else ""
        stage = ", input stage included" if self.encoded else ""
        return (
            f"{self.target}: equal scores on {self.vectors:,} vectors{rows}{stage} "
            f"({self.executor})"
        )


@dataclass(frozen=True)
class Exported:
    """An export directory that was written.

    Attributes:
        path: the directory.
        target: the target's name.
        fit: what went where, and what does not fit (only with ``force``).
        report: the target's figures.
        verification: the check at export time, or None where it was not asked for.
    """

    path: Path
    target: str
    fit: Fit
    report: Report
    verification: Verification | None


def exporter(target: str) -> Exporter:
    """The target of that name.

    Raises:
        UsageError: there is none; the text lists the targets.
    """
    found = plugins.load("n3ic.exporters", target)
    if not isinstance(found, Exporter):
        raise UsageError(f"the plug-in {target!r} is not an n3ic Exporter")
    return found


def export(
    model: BinaryModel,
    target: str,
    out: str | Path,
    *,
    options: Mapping[str, OptionValue] | None = None,
    force: bool = False,
    replace: bool = False,
    verify: bool = True,
    metrics: Mapping[str, Any] | None = None,
) -> Exported:
    """Write a model for a target into the directory ``out``, whole or not at all.

    Args:
        model: the model.
        target: the target's name.
        out: the directory; its parents are made.
        options: the target's options, by name.
        force: write a model that does not fit; the manifest says so.
        replace: replace ``out`` if it is an export directory already.
        verify: run a few hundred vectors before the directory appears. A target whose tool is
            missing is written all the same, and the result says what is missing.
        metrics: the run's metrics, for the report.

    Raises:
        UsageError: unknown target or option, or ``out`` exists.
        ExportError: the model does not fit.
        VerifyError: the artefacts do not compute the model's scores.
        N3icError: the directory cannot be written.
    """
    tool = exporter(target)
    parsed = tool.parse_options(options or {})
    fit = tool.check(model, parsed)
    if not fit.ok and not force:
        listed = "; ".join(str(p) for p in fit.problems)
        raise ExportError(
            f"{model.shape_text} does not fit {tool.device.name}: {listed} "
            "(--force writes it anyway)"
        )
    if replace and Path(out).is_dir() and not (Path(out) / MANIFEST).is_file():
        raise UsageError(f"{out} exists and is not an export directory; it is left as it is")
    with new_directory(out, replace=replace) as directory:
        tool.write(model, parsed, directory)
        model.save(directory / "model.n3ic")
        report = tool.report(model, parsed, directory)
        _write_report(directory, tool, model, fit, report, metrics)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "tool": f"n3ic {__version__}",
            "target": target,
            "device": tool.device.name,
            "options": dict(sorted(parsed.items())),
            "model": {"name": model.name, "sha256": model.digest, "shape": list(model.shape)},
            "fits": fit.ok,
            "problems": [str(p) for p in fit.problems],
            "files": {name: sha256_file(directory / name) for name in sorted(_files(directory))},
        }
        write_atomic(directory / MANIFEST, _json(manifest))
        result = None
        if verify:
            result = verify_directory(directory, vectors=tool.quick_vectors, record=False)
            if result.failures:
                raise VerifyError(str(result))
    return Exported(Path(out), target, fit, report, result)


def read_manifest(directory: str | Path) -> dict[str, Any]:
    """The manifest of an export directory, checked for form.

    Raises:
        ExportError: the directory is not an export, or of a newer version.
    """
    path = Path(directory) / MANIFEST
    try:
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise ExportError(f"{path}: too large for a manifest")
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ExportError(
            f"{directory} is not an export directory ({MANIFEST}: {error.strerror or error})"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path} is damaged: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ExportError(f"{path} is not a manifest of an n3ic export")
    if data.get("version") != VERSION:
        raise ExportError(f"{path}: version {data.get('version')!r}, this n3ic reads {VERSION}")
    files, options = data.get("files"), data.get("options")
    if not isinstance(data.get("target"), str) or not isinstance(options, dict):
        raise ExportError(f"{path}: target or options are missing")
    if not isinstance(files, dict) or any(
        not isinstance(v, str) or Path(k).is_absolute() or ".." in Path(k).parts
        for k, v in files.items()
    ):
        raise ExportError(f"{path}: the list of files is damaged")
    return data


def verify_directory(
    directory: str | Path,
    *,
    vectors: int | None = None,
    rows: Mapping[str, ArrayLike] | None = None,
    options: Mapping[str, OptionValue] | None = None,
    seed: int = 0,
    record: bool = True,
) -> Verification:
    """Run the artefacts of an export directory against its model.

    Boundary vectors, random vectors and the given rows run; scores, classes, margins and hidden
    bits are compared. The files' digests are compared with the manifest's too, but a changed
    file is still run, so that the result names the place.

    Args:
        directory: an export directory.
        vectors: how many boundary and random vectors; the target's default where None.
        rows: integer features to run besides, through the target's input stage where it has
            one.
        options: the target's verification options.
        seed: of the random vectors.
        record: write the outcome to ``verification.json`` in the directory.

    Raises:
        ExportError: the directory is not an export directory.
        UsageError: an unknown target or option.
        ModelError: its model is damaged, or the rows lack a feature.
    """
    path = Path(directory)
    manifest = read_manifest(path)
    tool = exporter(manifest["target"])
    known = {o.name for o in tool.options}
    parsed = tool.parse_options(
        {k: v for k, v in manifest["options"].items() if k in known} | dict(options or {}),
        verify=True,
    )
    model = BinaryModel.load(path / "model.n3ic")
    failures = list(_changed(path, manifest))
    if model.digest != manifest["model"]["sha256"]:
        failures.append("model.n3ic is not the model that was exported")
    count = tool.vectors if vectors is None else vectors
    words = verification_vectors(model, count, seed)
    generated = len(words)
    encoded = 0
    real = 0
    if rows is not None:
        wanted = {name: np.asarray(rows[name]) for name in model.input.features if name in rows}
        reference = model.encode(wanted)
        real = len(reference)
        words = np.concatenate([words, reference])
    try:
        if rows is not None:
            failure, encoded = _check_encoding(tool, path, model, parsed, wanted, reference)
            if failure:
                failures.append(failure)
        outcome = tool.run(path, model, parsed, words)
        difference = first_difference(model, outcome.trace, words)
        if difference is not None:
            failures.append(str(difference))
        result = Verification(
            tool.name,
            outcome.executor,
            generated,
            real,
            encoded,
            tuple(failures),
            figures=outcome.figures,
        )
    except VerifyError as error:
        result = Verification(tool.name, "", 0, failures=(*failures, str(error)))
    except MissingDependencyError as error:
        result = Verification(tool.name, "", 0, failures=tuple(failures), missing=str(error))
    if record:
        write_atomic(path / VERIFICATION, _json(asdict(result) | {"ok": result.ok}))
    return result


def _check_encoding(
    tool: Exporter,
    path: Path,
    model: BinaryModel,
    options: Options,
    rows: Mapping[str, Any],
    reference: Words,
) -> tuple[str, int]:
    got = tool.encode(path, model, options, rows)
    if got is None:
        return "", 0
    wrong = np.argwhere(got != reference)
    if not len(wrong):
        return "", len(reference)
    row, word = (int(i) for i in wrong[0])
    flipped = int(got[row, word]) ^ int(reference[row, word])
    bit = 32 * word + (flipped & -flipped).bit_length() - 1
    return (
        f"input stage: row {row}, {model.input.explain(bit)}: "
        f"expected {(int(reference[row, word]) >> (bit % 32)) & 1}"
    ), len(reference)


def _changed(path: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    for name, digest in manifest["files"].items():
        file = path / name
        if not file.is_file():
            yield f"{name} is missing"
        elif sha256_file(file) != digest:
            yield f"{name} was changed after the export"


def _files(directory: Path) -> Iterator[str]:
    for path in directory.rglob("*"):
        if path.is_file():
            yield path.relative_to(directory).as_posix()


def _json(data: Any) -> str:
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def accuracy_of(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """The figures of a run's metrics that a target's report repeats."""
    if not metrics:
        return {}
    test = metrics.get("test", {})
    keep = ("accuracy", "accuracy_unseen", "macro_f1", "fpr", "roc_auc", "rows")
    out = {k: test[k] for k in keep if k in test}
    data = metrics.get("data", {})
    return out | {f"data_{k}": data[k] for k in ("name", "synthetic") if k in data}


def _write_report(
    directory: Path,
    tool: Exporter,
    model: BinaryModel,
    fit: Fit,
    report: Report,
    metrics: Mapping[str, Any] | None,
) -> None:
    accuracy = accuracy_of(metrics)
    data = {
        "target": tool.name,
        "device": tool.device.name,
        "model": {"name": model.name, "shape": list(model.shape), "sha256": model.digest},
        "accuracy": accuracy,
        "placements": [asdict(p) for p in fit.placements],
        "problems": [asdict(p) for p in fit.problems],
        "figures": [asdict(f) for f in report.figures],
        "notes": list(report.notes),
    }
    write_atomic(directory / "report.json", _json(data))
    lines = [f"# {_md(model.name)} ({model.shape_text}) on {tool.device.name}", ""]
    if accuracy:
        shown = ", ".join(
            f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {_md(str(v))}"
            for k, v in accuracy.items()
        )
        lines += [f"Accuracy of the run that it comes from: {shown}.", ""]
    lines += [f"**Does not fit:** {_md(str(p))}" for p in fit.problems]
    if fit.placements:
        lines += ["## What lies where", "", "| part | memory | bytes |", "|---|---|---:|"]
        lines += [f"| {_md(p.part)} | {p.memory} | {p.bytes:,} |" for p in fit.placements]
        lines.append("")
    lines += [
        "## Figures",
        "",
        "| figure | value | unit | kind | paper | source |",
        "|---|---:|---|---|---:|---|",
    ]
    lines += [
        f"| {f.name} | {_number(f.value)} | {f.unit} | {f.kind} | "
        f"{'' if f.paper is None else _number(f.paper)} | {_md(f.source)} |"
        for f in report.figures
    ]
    lines += ["", *(f"- {_md(note)}" for note in report.notes)]
    write_atomic(directory / "report.md", "\n".join(lines).rstrip() + "\n")


def _number(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}"


def _md(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
