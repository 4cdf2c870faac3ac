"""Verification: the artefacts of an export directory against their model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from n3ic.errors import (
    MissingDependencyError,
    VerifyError,
)
from n3ic.model.bits import Words
from n3ic.model.boundary import verification_vectors
from n3ic.model.difference import first_difference
from n3ic.model.network import BinaryModel
from n3ic.options import Options, OptionValue
from n3ic.targets.base import Exporter, exporter
from n3ic.targets.decoding import decoding_difference
from n3ic.targets.figures import Figure
from n3ic.targets.manifest import exported_network, read_manifest
from n3ic.util.files import sha256_file, write_atomic
from n3ic.util.json_text import json_text

VERIFICATION = "verification.json"


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
        decoded: artefacts whose weights, thresholds and cuts were read back and compared.
    """

    target: str
    executor: str
    vectors: int
    rows: int = 0
    encoded: int = 0
    failures: tuple[str, ...] = ()
    missing: str = ""
    figures: tuple[Figure, ...] = ()
    decoded: tuple[str, ...] = ()

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
    network = exported_network(path, manifest)
    source, model = network.source, network.model
    failures = list(_changed(path, manifest))
    if source.digest != manifest["model"]["sha256"]:
        failures.append("model.n3ic is not the model that was exported")
    count = tool.vectors if vectors is None else vectors
    words = verification_vectors(source, count, seed)
    generated = len(words)
    encoded = 0
    real = 0
    if rows is not None:
        wanted = {name: np.asarray(rows[name]) for name in source.input.features if name in rows}
        reference = source.encode(wanted)
        real = len(reference)
        words = np.concatenate([words, reference])
    inputs = network.inputs(words)
    decoded: list[str] = []
    try:
        for found in tool.decode(path, model, parsed):
            decoded.append(found.artefact)
            wrong = decoding_difference(model, found)
            if wrong:
                failures.append(wrong)
        if rows is not None:
            expected = network.inputs(reference)
            failure, encoded = _check_encoding(tool, path, model, parsed, wanted, expected)
            if failure:
                failures.append(failure)
        outcome = tool.run(path, model, parsed, inputs)
        difference = first_difference(model, outcome.inference, inputs)
        if difference is None and model is not source:
            # The trained network has the last word; its hidden neurons are others.
            difference = first_difference(source, replace(outcome.inference, hidden=()), words)
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
            decoded=tuple(decoded),
        )
    except VerifyError as error:
        result = Verification(tool.name, "", 0, failures=(*failures, str(error)))
    except MissingDependencyError as error:
        result = Verification(tool.name, "", 0, failures=tuple(failures), missing=str(error))
    if record:
        write_atomic(path / VERIFICATION, json_text(asdict(result) | {"ok": result.ok}))
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
