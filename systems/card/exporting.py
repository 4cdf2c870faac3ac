"""A plan as one image: the directory that a target writes, and its verification."""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

from n3ic import __version__, plugins
from n3ic.errors import MissingDependencyError, UsageError, VerifyError
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.description import Card
from n3ic.systems.card.plan import Plan
from n3ic.systems.card.resources import Amount, TaskCost
from n3ic.targets.artefacts import files_of
from n3ic.targets.base import Exporter, exporter
from n3ic.targets.custody import difference
from n3ic.targets.figures import Figure
from n3ic.targets.manifest import CARD_FORMAT, FORMAT, MANIFEST, MAX_JSON_BYTES, VERIFICATION
from n3ic.util.files import new_directory, read_regular, sha256_file, write_atomic
from n3ic.util.json_text import json_text
from n3ic.util.markdown import escaped, table

VERSION = 1
GROUP = "n3ic.card_targets"


@dataclass(frozen=True)
class CardCheck:
    """What a verification ran, all of it equal to the networks.

    Attributes:
        executor: what ran the image.
        packets: packets that it was given.
        inferences: inferences that were compared.
        graphs: packets of each graph, by its full name.
        figures: what was seen of its speed.
        compared: what of each inference was compared.
    """

    executor: str
    packets: int
    inferences: int
    graphs: dict[str, int]
    figures: tuple[Figure, ...] = ()
    compared: str = "scores and hidden bits"


class CardTarget(ABC):
    """How a target writes one image for several tenants.

    An entry point in the group ``n3ic.card_targets`` names an instance.

    Attributes:
        name: the name of the target.
        inputs: whether packets may hold features, of which an input stage makes bits.
        fixed: why an image cannot be changed while it runs; empty where it can.
        products: what building a card makes in its directory beside the products of the target,
            as patterns of paths.
    """

    name: ClassVar[str]
    inputs: ClassVar[bool] = True
    fixed: ClassVar[str] = "this target knows no change of a card that runs"
    products: ClassVar[tuple[str, ...]] = ()

    @property
    def exporter(self) -> Exporter:
        """The target itself, which exports single networks."""
        return exporter(self.name)

    def is_product(self, name: str) -> bool:
        """Whether a file of that path is made by building a card."""
        return self.exporter.is_product(name) or any(fnmatchcase(name, p) for p in self.products)

    def joint_needs(self, card: Card) -> Mapping[str, Mapping[str, Amount]]:
        """What networks take of the one image that they share, where it is less than alone.

        Returns:
            By task, amounts by resource, in place of those of the network's own report. All
            together are what the image takes. Nothing by default.

        Raises:
            CardError: a task or a flow that the target does not have.
        """
        return {}

    @abstractmethod
    def write_card(self, plan: Plan, out: Path) -> None:
        """Write the image of a plan, and a README, into the empty directory ``out``.

        The same plan gives the same bytes.

        Raises:
            CardError: a task or a flow that the target does not have.
        """

    @abstractmethod
    def verify_card(self, plan: Plan, directory: Path, packets: int) -> CardCheck:
        """Run every network of a plan through the joint image, tenants interleaved at random.

        Args:
            plan: what the image was written for.
            directory: what :meth:`write_card` wrote; it is read and not changed.
            packets: packets of each graph.

        Raises:
            MissingDependencyError: a tool is not installed.
            VerifyError: an answer differs, or a packet is lost.
        """

    def change_card(self, plan: Plan, change: CardChange, to: str) -> str:
        """Change one tenant's part of a card while packets of the others flow.

        Args:
            plan: what the running image was written for.
            change: what comes, is replaced or goes.
            to: the running card, or the file of what its control plane is to do, as the target has
                it.

        Returns:
            What was done, or what does it, in a sentence.

        Raises:
            UsageError: the image cannot change that way, or there is no such running card.
            N3icError: the running card refuses it.
        """
        raise UsageError(f"{plan.card.device.target}: {self.fixed}; export the card anew")


@dataclass(frozen=True)
class ExportedCard:
    """A card that was written.

    Attributes:
        directory: where.
        check: its verification; None where a tool for that is missing, or it was not asked for.
        missing: which tool.
    """

    directory: Path
    check: CardCheck | None
    missing: str = ""


def joint_costs(card: Card, costs: Mapping[str, TaskCost]) -> dict[str, TaskCost]:
    """What tasks take together, on a target whose image they share; see ``joint_needs``.

    Args:
        card: its description; what it states of a task stays.
        costs: what each task takes alone.
    """
    if card.device.target not in plugins.names(GROUP):
        return dict(costs)
    found = card_target(card.device.target)
    needs = found.joint_needs(card)
    return {
        name: replace(cost, needs={**cost.needs, **needs[name]})
        if name in needs and card.tasks[name].needs is None
        else cost
        for name, cost in costs.items()
    }


def card_target(target: str) -> CardTarget:
    """How a target writes cards.

    Raises:
        UsageError: no target of that name, or it writes no cards.
    """
    exporter(target)  # a mistyped name is said as such
    if target not in plugins.names(GROUP):
        raise UsageError(f"target {target} writes no card of several tenants")
    found: CardTarget = plugins.load(GROUP, target)
    return found


def export_card(
    plan: Plan, out: Path, *, replace: bool = False, packets: int = 12, verify: bool = True
) -> ExportedCard:
    """Write the image of a plan, whole or not at all.

    Args:
        plan: the plan; its card names the target.
        out: the directory.
        replace: whether an existing export of a card may be replaced.
        packets: packets of each graph in the verification.
        verify: run them before the directory appears.

    Raises:
        UsageError: the target writes no cards, or ``out`` exists.
        CardError: the target lacks a task.
        VerifyError: the image computes something else than the networks.
    """
    target = card_target(plan.card.device.target)
    check, missing = None, ""
    written = _written(target, out) if replace else ()
    with new_directory(out, replace=replace, written=written) as directory:
        _write(target, plan, directory)
        if verify:
            try:
                check = target.verify_card(plan, directory, packets)
            except MissingDependencyError as error:
                missing = str(error)
        if check is not None:
            write_atomic(directory / VERIFICATION, json_text(asdict(check)))
            write_atomic(directory / "report.md", report_text(plan, check))
    return ExportedCard(out, check, missing)


def verify_card(plan: Plan, directory: Path, packets: int) -> CardCheck:
    """Verify an export: it must be what is written for the plan, byte for byte, and compute it.

    Nothing of the directory runs that would not be written anew; what a build made there is not
    looked at.

    Raises:
        UsageError: there is no such directory.
        VerifyError: a file is missing, changed or too much, or an answer differs.
    """
    target = card_target(plan.card.device.target)
    with _written_anew(target, plan, directory) as fresh:
        return target.verify_card(plan, fresh, packets)


def change_card(plan: Plan, directory: Path, change: CardChange, to: str) -> str:
    """Change a card that runs an export; see :meth:`CardTarget.change_card`.

    Args:
        plan: of the card.
        directory: the export that runs.
        change: what comes, is replaced or goes.
        to: as the target has it.

    Raises:
        UsageError: there is no such directory, or its image cannot change that way.
        VerifyError: the directory is not what is written for the plan.
    """
    target = card_target(plan.card.device.target)
    if target.fixed:
        target.change_card(plan, change, to)
    with _written_anew(target, plan, directory):
        return target.change_card(plan, change, to)


def check_directory(directory: Path) -> None:
    """Refuse a directory that is no export of a card.

    Raises:
        UsageError: it is none; where it is that of one model, says so.
    """
    written = _manifest(directory).get("format")
    if written == FORMAT:
        raise UsageError(f"{directory} is the export of one model: n3ic verify {directory}")
    if written != CARD_FORMAT:
        raise UsageError(f"{directory} is no exported card, expected what n3ic card export wrote")


@contextmanager
def _written_anew(target: CardTarget, plan: Plan, directory: Path) -> Iterator[Path]:
    """A fresh export of a plan, to which a directory is equal."""
    check_directory(directory)
    with tempfile.TemporaryDirectory(prefix="n3ic-card-") as name:
        fresh = Path(name) / "card"
        fresh.mkdir()
        _write(target, plan, fresh)
        found = {name for name in files_of(directory) if not target.is_product(name)}
        written = files_of(fresh)
        for file in sorted({*written, *found} - {VERIFICATION, "report.md"}):
            if file not in written:
                raise VerifyError(f"{file}: n3ic writes no such file for this card")
            if file not in found:
                raise VerifyError(f"{file}: missing from {directory}")
            if why := difference(directory / file, fresh / file, "this card"):
                raise VerifyError(f"{file}: {why}")
        yield fresh


def report_text(plan: Plan, check: CardCheck) -> str:
    """The report of a card, as Markdown."""
    lines = [
        f"# {escaped(plan.card.name)}",
        "",
        f"Verified with {escaped(check.executor)}: {check.packets:,} packets of all graphs in "
        f"random order, {check.inferences:,} inferences equal in {check.compared}.",
        "",
    ]
    rows = [[name, f"{count:,}"] for name, count in check.graphs.items()]
    lines += table(["graph", "packets"], rows)
    figures = [[f.name, f"{f.value:g} {f.unit}", f.kind, f.source] for f in check.figures]
    lines += ["", *table(["figure", "value", "kind", "source"], figures)] if figures else []
    return "\n".join(lines) + "\n"


def _write(target: CardTarget, plan: Plan, directory: Path) -> None:
    target.write_card(plan, directory)
    write_atomic(directory / "plan.json", json_text(plan.to_dict()))
    manifest: dict[str, Any] = {
        "format": CARD_FORMAT,
        "version": VERSION,
        "tool": f"n3ic {__version__}",
        "target": plan.card.device.target,
        "card": plan.card.name,
        "files": {name: sha256_file(directory / name) for name in files_of(directory)},
    }
    write_atomic(directory / MANIFEST, json_text(manifest))


def _written(target: CardTarget, out: Path) -> tuple[str, ...]:
    """Files of an export of a card that may be replaced: its manifest's, and what a build made."""
    found = _manifest(out)
    names = found.get("files") if found.get("format") == CARD_FORMAT else None
    if not isinstance(names, dict) or not names:
        return ()
    built = (name for name in files_of(out) if target.is_product(name))
    return (*names, MANIFEST, VERIFICATION, "report.md", *built)


def _manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a directory; empty where it has none that can be read."""
    try:
        found = json.loads(read_regular(directory / MANIFEST, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
