# SPDX-License-Identifier: Apache-2.0
"""Verifies the artefacts of an export directory against their model."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from n3ic.errors import MissingDependencyError, N3icError, N3icWarning, VerifyError
from n3ic.model.bits import Words, pack, unpack
from n3ic.model.classifier import Classifier, margins_of
from n3ic.model.difference import first_difference
from n3ic.model.family import family
from n3ic.model.layered import in_layers
from n3ic.model.network import BinaryModel
from n3ic.model.passes import Simplified, unchanged
from n3ic.model.verification_vectors import boundary_features, margin_vectors
from n3ic.options import Options, OptionValue
from n3ic.targets.artefacts import copy_files
from n3ic.targets.base import Exporter, exporter
from n3ic.targets.decoding import decoding_difference
from n3ic.targets.figures import Figure, Report
from n3ic.targets.integrity import regenerate
from n3ic.targets.manifest import exported_network, read_manifest
from n3ic.targets.meter_verification import check_metering
from n3ic.targets.verification_record import state_of, write_record
from n3ic.util.display import Displayed, View, facts


@dataclass(frozen=True, repr=False)
class Verification(Displayed):
    """The outcome of running an export's artefacts against its model.

    Attributes:
        target: the target's name.
        executor: the executor of the artefacts; empty if nothing could run them.
        vectors: number of boundary, deciding and random vectors.
        rows: number of further rows, from a table.
        encoded: number of the table's rows that went through the target's own input stage.
        failures: differences and errors, in words; empty if everything is equal.
        missing: the missing tool, in words, without which the artefacts were not run.
        figures: figures of speed from the run.
        decoded: artefacts whose weights, thresholds and cuts were read back and compared.
        files: number of files that equal n3ic's own, byte for byte; 0 if not compared.
        edges: number of rows of features at the edges of the input stage (each cut, one below and
            one above it, the clamps, 0, the largest value) that went through it; 0 if the target
            has no input stage.
        parameters: the counted parameters: ``weight bits`` of a binary network, ``entries and
            weights`` of a sum-product network.
        weight_bits: number of these in the model that ran; 0 if decided ones were not counted.
        decided_bits: number of them that the vectors decide, so that a wrong one would show.
        undecided: the others, in words: one line per layer.
        note: a remark for the reader, or empty.
        shunt: the model's shunting threshold, by which verdicts were compared; 0 for none.
        at_shunt: number of inputs with the smallest margin at or above that threshold.
        below_shunt: number of inputs with the largest margin below it.
        packets: packets that the target's own meter counted; 0 if it has no meter.
        flows: flows in these packets, each compared in registers, bits, scores and verdict.
        unmetered: why given captures were not metered, in words; empty if they were.
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
    files: int = 0
    edges: int = 0
    parameters: str = "weight bits"
    weight_bits: int = 0
    decided_bits: int = 0
    undecided: tuple[str, ...] = ()
    note: str = ""
    shunt: int = 0
    at_shunt: int = 0
    below_shunt: int = 0
    packets: int = 0
    flows: int = 0
    unmetered: str = ""

    @property
    def ok(self) -> bool:
        """Whether the artefacts ran and computed the model's scores everywhere."""
        return not self.failures and not self.missing

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"ok": self.ok}

    def view(self) -> View:
        """The title and the tables that are displayed."""
        counted = {
            "vectors": self.vectors,
            "rows of a table": self.rows,
            "rows at the edges of the input stage": self.edges,
            f"{self.parameters} that the vectors decide": self.decided_bits,
            f"{self.parameters} of the model": self.weight_bits,
            "files equal to what is written": self.files,
            "packets metered": self.packets,
            "flows compared": self.flows,
        }
        tables = [
            facts(
                "verification",
                [
                    ("outcome", "equal" if self.ok else "failed" if self.failures else "not run"),
                    ("executor", self.executor),
                    *((name, f"{count:,}") for name, count in counted.items() if count),
                    ("read back and compared", ", ".join(self.decoded)),
                ],
            )
        ]
        if self.figures:
            tables.append(Report(self.figures).table)
        remarks = (*self.failures, self.missing, *self.undecided, self.note, self.unmetered)
        return View(str(self), tuple(tables), tuple(filter(None, remarks)))

    def __str__(self) -> str:
        if self.failures:
            return f"{self.target}: FAILED: {'; '.join(self.failures)}"
        if self.missing:
            return f"{self.target}: not run: {self.missing}"
        stage = f", input stage included ({self.edges:,} rows of edges)" if self.edges else ""
        if self.weight_bits == self.decided_bits:
            share_text = "any"
        else:
            # Round down, so that 100 % means all.
            share_text = f"{100 * self.decided_bits * 100 // self.weight_bits / 100:.2f} %"
        bits = (
            f", which would show an error in {share_text} of {self.weight_bits:,} {self.parameters}"
            if self.weight_bits
            else ""
        )
        rows = f"{',' if bits else ''} and {self.rows:,} rows" if self.rows else ""
        note = f"; {self.note}" if self.note else ""
        compared = "scores and verdicts" if self.shunt else "scores"
        edges = (
            f", {self.at_shunt:,} at the shunting threshold {self.shunt} and "
            f"{self.below_shunt:,} just below"
            if self.shunt
            else ""
        )
        metered = (
            f", and on {self.flows:,} flows that it metered from {self.packets:,} packets"
            if self.packets
            else f", captures not metered: {self.unmetered}"
            if self.unmetered
            else ""
        )
        return (
            f"{self.target}: equal {compared} on {self.vectors:,} vectors{bits}{rows}{edges}"
            f"{stage}{metered} ({self.executor}){note}"
        )


def verify_directory(
    directory: str | Path,
    *,
    vectors: int | None = None,
    rows: Mapping[str, ArrayLike] | None = None,
    captures: Sequence[Path] = (),
    options: Mapping[str, OptionValue] | None = None,
    seed: int = 0,
    record: bool = True,
    run_changed: bool = False,
) -> Verification:
    """Compare an export directory with what n3ic writes, then run it against its model.

    First the export is written again, from the directory's model and the manifest's options, and
    every file is compared byte for byte. A directory in which a file or a field of the manifest
    differs fails and is not run. Otherwise the new files are run on boundary vectors,
    random vectors and the given rows; scores, classes, margins and hidden bits are compared. If the
    target meters packets, it also meters generated traffic and the given captures.

    Args:
        directory: an export directory.
        vectors: number of boundary and random vectors; None for the target's default.
        rows: further inputs as integer features, for the target's input stage if it has one.
        captures: further inputs as captures, for the target's own meter.
        options: the target's verification options.
        seed: seed of the random vectors.
        record: write the outcome to ``verification.json`` in the directory.
        run_changed: run the directory's files although they differ, to locate the difference.
            This runs the code of whoever changed them.

    Raises:
        ExportError: the directory is not an export directory.
        UsageError: the target or an option is unknown, or captures are given without a meter.
        DataError: a capture cannot be read.
        ModelError: the model is damaged, or the rows lack a feature.

    Warns:
        N3icWarning: changed files are run, or the outcome cannot be recorded.
    """
    path = Path(directory)
    manifest = read_manifest(path)
    network = exported_network(path, manifest)
    tool = exporter(manifest["target"]).for_family(network.model.family)
    tool = tool.for_options(manifest["options"])
    parsed = tool.parse_options(manifest["options"] | dict(options or {}), verify=True)
    state = state_of(path, tool)
    with tempfile.TemporaryDirectory(prefix="n3ic-verify-") as name:
        fresh, copy = Path(name, "fresh"), Path(name, "copy")
        fresh.mkdir()
        copy.mkdir()
        try:
            integrity = regenerate(path, manifest, tool, network, fresh)
        except MissingDependencyError as error:
            return Verification(tool.name, "", 0, missing=str(error))
        if integrity.changed:
            copy_files(path, fresh, copy)
        if integrity.changed and not run_changed:
            result = _not_run(copy, tool, network.model, parsed)
        else:
            if integrity.changed:
                warnings.warn(
                    f"{path} is not what n3ic writes: its code is run with your rights",
                    N3icWarning,
                    stacklevel=2,
                )
            count = tool.verification.vectors if vectors is None else vectors
            place = copy if integrity.changed else fresh
            result = verify_artefacts(
                place, tool, network, parsed, count, rows=rows, captures=captures, seed=seed
            )
    result = replace(
        result,
        failures=(*integrity.changed, *integrity.added, *result.failures),
        files=integrity.equal,
        note=integrity.note,
    )
    if record:
        try:
            write_record(path, result.to_dict(), state)
        except N3icError as error:
            text = f"the outcome is not recorded (--no-record): {error}"
            warnings.warn(text, N3icWarning, stacklevel=2)
    return result


def verify_artefacts(
    directory: Path,
    tool: Exporter[Any],
    network: Simplified[Any],
    options: Options,
    vectors: int,
    *,
    rows: Mapping[str, ArrayLike] | None = None,
    captures: Sequence[Path] = (),
    seed: int = 0,
) -> Verification:
    """Read a target's artefacts back and run them; see :func:`verify_directory`.

    Args:
        directory: the artefacts; they are run, so they must be newly written or trusted.
        tool: the target.
        network: the network of the artefacts, and the trained network behind it.
        options: options of the export and of the verification.
        vectors: number of boundary and random vectors.
        rows: further inputs as integer features.
        captures: further inputs as captures.
        seed: seed of the random vectors.
    """
    source, model = network.source, network.model
    near = margin_vectors(source, seed)
    words = np.concatenate([near, _vectors(network, vectors - len(near), seed)])
    if tool.of_features(model):
        words = pack(source.input.ordered(unpack(words, source.input.n_bits)))
    generated = len(words)
    features = boundary_features(source.input, seed)
    edges = len(next(iter(features.values())))
    real = 0
    if rows is not None:
        columns = {name: np.asarray(rows[name]) for name in source.input.features if name in rows}
        reference = source.encode(columns)
        real = len(reference)
        words = np.concatenate([words, reference])
        features = {name: np.concatenate([features[name], columns[name]]) for name in features}
    inputs = network.inputs(words)
    failures: list[str] = []
    try:
        decoded, failures = _decode(directory, tool, model, options)
        failure, has_stage = _check_encoding(tool, directory, network, options, features)
        if failure:
            failures.append(failure)
        outcome = tool.run(directory, model, options, inputs)
        metering = check_metering(
            tool, directory, network, options, packets=vectors, seed=seed, captures=captures
        )
    except VerifyError as error:
        return Verification(tool.name, "", 0, failures=(*failures, str(error)))
    except MissingDependencyError as error:
        return Verification(tool.name, "", 0, failures=tuple(failures), missing=str(error))
    difference = first_difference(model, outcome.inference, inputs)
    if difference is None and model is not source:
        # The trained network is the reference; the exported one may have other hidden neurons.
        difference = first_difference(source, replace(outcome.inference, hidden=()), words)
    if difference is not None:
        failures.append(str(difference))
    failures += metering.failures
    known = family(model.family).decided(model, inputs, outcome.inference)
    at_shunt, below_shunt = _beside_threshold(source, words)
    return Verification(
        tool.name,
        outcome.executor,
        generated,
        real,
        real if has_stage else 0,
        tuple(failures),
        figures=outcome.figures,
        decoded=decoded,
        edges=edges if has_stage else 0,
        parameters=known.parameters,
        weight_bits=known.total,
        decided_bits=known.decided,
        undecided=known.undecided,
        shunt=source.shunt,
        at_shunt=at_shunt,
        below_shunt=below_shunt,
        packets=metering.packets,
        flows=metering.flows,
        unmetered=metering.missing if captures else "",
    )


def _vectors(network: Simplified[Any], count: int, seed: int) -> Words:
    """The inputs by which a network is verified: its family's.

    A network that was written from another family's model has those of both families: the other's
    own scores may be those of inputs that features can have only.
    """
    source = network.source
    form = in_layers(source)
    if form is source:
        return family(source.family).vectors(network, count, seed)
    own = family(source.family).vectors(unchanged(source), count // 2, seed)
    layers = family(form.family).vectors(replace(network, source=form), count - len(own), seed)
    n_bits = source.input.n_bits
    return np.concatenate([own, pack(source.input.ordered(unpack(layers, n_bits)))])


def _beside_threshold(model: Classifier, words: Words) -> tuple[int, int]:
    """Count the inputs with the smallest decided margin, and with the largest shunted margin."""
    if not model.shunt:
        return 0, 0
    margins = margins_of(model.scores(words))
    decided, shunted = margins[margins >= model.shunt], margins[margins < model.shunt]
    return (
        int((decided == decided.min(initial=np.iinfo(np.int32).max)).sum()),
        int((shunted == shunted.max(initial=0)).sum()),
    )


def _not_run(path: Path, tool: Exporter[Any], model: Classifier, options: Options) -> Verification:
    """The verification of artefacts that could not be run."""
    try:
        decoded, failures = _decode(path, tool, model, options)
    except VerifyError as error:
        decoded, failures = (), [str(error)]
    except MissingDependencyError:
        decoded, failures = (), []
    failures.append("the export is not what n3ic writes and was not run (--run-changed runs it)")
    return Verification(tool.name, "", 0, failures=tuple(failures), decoded=decoded)


def _decode(
    directory: Path, tool: Exporter[Any], model: Classifier, options: Options
) -> tuple[tuple[str, ...], list[str]]:
    """Artefacts that were read back, and where they differ from the model."""
    artefacts = tool.decode(directory, model, options)
    if not isinstance(model, BinaryModel):
        return tuple(artefact.artefact for artefact in artefacts), []
    wrong = [decoding_difference(model, artefact) for artefact in artefacts]
    failures = [text for text in wrong if text]
    if artefacts and model.shunt and all(artefact.shunt is None for artefact in artefacts):
        names = ", ".join(artefact.artefact for artefact in artefacts)
        failures.append(f"{names}: no shunting threshold, the model's is {model.shunt}")
    return tuple(artefact.artefact for artefact in artefacts), failures


def _check_encoding(
    tool: Exporter[Any],
    path: Path,
    network: Simplified[Any],
    options: Options,
    features: Mapping[str, Any],
) -> tuple[str, bool]:
    """Where the target's input stage gives wrong bits, in words, and whether it has one."""
    model = network.model
    words = tool.encode(path, model, options, features)
    if words is None:
        return "", False
    reference = network.inputs(network.source.encode(features))
    if words.shape != reference.shape:
        return f"input stage: shape {reference.shape} expected, got {words.shape}", True
    wrong = np.argwhere(words != reference)
    if not len(wrong):
        return "", True
    row, word = (int(i) for i in wrong[0])
    flipped = int(words[row, word]) ^ int(reference[row, word])
    bit = 32 * word + (flipped & -flipped).bit_length() - 1
    if bit >= model.input.n_bits:
        return f"input stage: row {row}, pad bit {bit} is not 0", True
    feature = model.input.feature_of(bit)
    return (
        f"input stage: {feature} = {int(features[feature][row])}, {model.input.explain(bit)}: "
        f"expected {(int(reference[row, word]) >> (bit % 32)) & 1}"
    ), True
