# SPDX-License-Identifier: Apache-2.0
"""Export a plan as one image, which is a directory that a target writes, and verify it."""

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
from n3ic.errors import CardError, MissingDependencyError, UsageError, VerifyError
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.control.run import RunningCard
from n3ic.systems.card.description import Card, InputStage, NetworkTask
from n3ic.systems.card.models import network_of
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.resources import Amount, TaskCost
from n3ic.targets.artefacts import files_of
from n3ic.targets.base import Exporter, exporter
from n3ic.targets.bill_of_materials import (
    claimed_versions,
    library_versions,
    write_card_bill_of_materials,
)
from n3ic.targets.figures import Figure
from n3ic.targets.integrity import difference
from n3ic.targets.manifest import CARD_FORMAT, FORMAT, MANIFEST, MAX_JSON_BYTES, VERIFICATION
from n3ic.util.files import new_directory, read_regular, sha256_file, write_atomic
from n3ic.util.json_text import json_text
from n3ic.util.markdown import escaped, table

VERSION = 1
GROUP = "n3ic.card_targets"


@dataclass(frozen=True)
class CardCheck:
    """Result of a verification in which all compared values were equal.

    Attributes:
        executor: name of what ran the image.
        packets: number of packets sent.
        inferences: number of inferences compared.
        graphs: number of packets of each graph, by full name.
        figures: speed figures observed.
        compared: parts of each inference that were compared.
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
        name: name of the target.
        inputs: whether packets may hold features, which an input stage turns into bits.
        families: families of models that its cards compute; empty for all that the target writes.
        products: path patterns of files that building a card creates, in addition to those of the
            target.
        beyond: what becomes of packets beyond their tenant's guarantee, a sentence for the report.
        queue: packets of a tenant that the card holds; 0 for a target without queues.
        run_seconds: fewest, usual and most seconds for which a card runs under the control loop.
        failures: failures of regions that such a run can have.
    """

    name: ClassVar[str]
    inputs: ClassVar[bool] = True
    families: ClassVar[tuple[str, ...]] = ()
    products: ClassVar[tuple[str, ...]] = ()
    beyond: ClassVar[str] = (
        "Packets beyond their tenant's guarantee are dropped: the target has no queue for them."
    )

    queue: ClassVar[int] = 0
    run_seconds: ClassVar[tuple[float, float, float]] = (0.1, 10.0, 86_400.0)
    failures: ClassVar[frozenset[str]] = frozenset({"lost"})

    @property
    def exporter(self) -> Exporter:
        """The exporter of the target, for single networks."""
        return exporter(self.name)

    def is_product(self, name: str) -> bool:
        """Whether building a card creates a file with this path."""
        return self.exporter.is_product(name) or any(fnmatchcase(name, p) for p in self.products)

    def joint_needs(self, card: Card) -> Mapping[str, Mapping[str, Amount]]:
        """Return the resources of networks in the joint image, where sharing makes them smaller.

        Returns:
            For each task, amounts by resource, which replace those of the network's own report.
            Their sum is what the image takes. Empty by default.

        Raises:
            CardError: the target does not support a task or a flow.
        """
        return {}

    def taking_turns(self, plan: CardPlan) -> frozenset[str]:
        """Return tasks that take turns with those of their region, as they share what computes."""
        return frozenset()

    @abstractmethod
    def write_card(self, plan: CardPlan, out: Path) -> None:
        """Write the image of a plan and a README into the empty directory ``out``.

        Deterministic: the same plan gives the same bytes.

        Raises:
            CardError: the target does not support a task or a flow.
        """

    @abstractmethod
    def verify_card(self, plan: CardPlan, directory: Path, packets: int) -> CardCheck:
        """Run every network of a plan through the joint image, with tenants interleaved at random.

        Args:
            plan: plan of the image.
            directory: directory written by :meth:`write_card`; only read.
            packets: number of packets per graph.

        Raises:
            MissingDependencyError: a tool is not installed.
            VerifyError: an answer differs, or a packet is lost.
        """

    @abstractmethod
    def change_card(self, plan: CardPlan, change: CardChange, to: str) -> str:
        """Change one tenant's part of a card while packets of the others flow.

        Args:
            plan: plan of the running image.
            change: the change.
            to: address of the running card, or a file for the control plane's operations; the form
                depends on the target.

        Returns:
            A sentence that says what was done or written.

        Raises:
            UsageError: no such card is running.
            N3icError: the running card refuses the change.
        """

    def open_card(self, plan: CardPlan, directory: Path, threads: int) -> RunningCard:
        """Open an image on this machine, for the control loop: software, or a simulated card.

        Args:
            plan: plan of the image.
            directory: directory written by :meth:`write_card`; not read after this call.
            threads: threads that compute, where it has threads.

        Raises:
            MissingDependencyError: a tool is not installed.
            UsageError: the target's cards run on devices only.
            VerifyError: the image does not compile.
        """
        raise UsageError(
            f"a card of target {self.name} runs on its device, expected one of target host, xdp or "
            "netfpga"
        )


IDLE_GIVEN_AWAY = (
    "Packets beyond their tenant's guarantee share what is idle by dominant resource fair queueing."
)
"""``CardTarget.beyond`` of a target that schedules packets in two colours."""


@dataclass(frozen=True)
class ExportedCard:
    """A card that was exported.

    Attributes:
        directory: the export directory.
        check: its verification; None if it was skipped or a tool is missing.
        missing: description of the missing tool.
    """

    directory: Path
    check: CardCheck | None
    missing: str = ""


def joint_costs(card: Card, costs: Mapping[str, TaskCost]) -> dict[str, TaskCost]:
    """Compute the costs of tasks in a joint image; see ``joint_needs``.

    Args:
        card: description of the card; costs that it states are kept.
        costs: cost of each task alone.
    """
    if card.device.target not in plugins.names(GROUP):
        return dict(costs)
    target = card_target(card.device.target)
    needs = target.joint_needs(card)
    return {
        name: replace(cost, needs={**cost.needs, **needs[name]})
        if name in needs and card.tasks[name].needs is None
        else cost
        for name, cost in costs.items()
    }


def check_families(card: Card) -> None:
    """Check that the target's cards compute the families of all networks.

    Raises:
        CardError: they do not; the error names the task's line, and the targets whose cards do.
    """
    if card.device.target not in plugins.names(GROUP):
        return
    target = card_target(card.device.target)
    for name, task in card.tasks.items():
        if not target.families or not isinstance(task, NetworkTask | InputStage):
            continue
        if (model := network_of(card, name)).family not in target.families:
            others = " or ".join(n for n in plugins.names(GROUP) if not card_target(n).families)
            raise CardError(
                f"{card.source}:{task.line}: task {name!r}: a card of target {target.name} "
                f"computes models of family {', '.join(target.families)}, got {model.family}: "
                f"set target {others} in [device], whose cards compute what the target writes"
            )


def taking_turns(plan: CardPlan) -> frozenset[str]:
    """Return the tasks that take turns; see :meth:`CardTarget.taking_turns`."""
    name = plan.card.device.target
    return card_target(name).taking_turns(plan) if name in plugins.names(GROUP) else frozenset()


def frames_held(card: Card) -> int:
    """Return the packets of a tenant that the card holds; 0 for a target without queues.

    Raises:
        CardError: the description asks for queues, and the target has none.
    """
    name = card.device.target
    own = card_target(name).queue if name in plugins.names(GROUP) else 0
    if card.device.queue and not own:
        raise CardError(
            f"{card.source}: {f'target {name}' if name else 'a card without target'} has no "
            "queues: remove 'queue' from [device]"
        )
    return card.device.queue or own


def card_target(target: str) -> CardTarget:
    """Return the object with which a target writes cards.

    Raises:
        UsageError: the target does not exist, or does not write cards.
    """
    exporter(target)  # a mistyped name gets its error, which suggests similar names
    if target not in plugins.names(GROUP):
        able = ", ".join(plugins.names(GROUP))
        raise UsageError(
            f"target {target} cannot write a card of several tenants, expected one of {able}"
        )
    target_of_card: CardTarget = plugins.load(GROUP, target)
    return target_of_card


def export_card(
    plan: CardPlan, out: Path, *, replace: bool = False, packets: int = 12, verify: bool = True
) -> ExportedCard:
    """Write the image of a plan atomically.

    Args:
        plan: plan whose card names the target.
        out: directory to create.
        replace: whether an existing export of a card may be replaced.
        packets: packets per graph in the verification.
        verify: whether to verify before the directory appears.

    Raises:
        UsageError: the target does not write cards, or ``out`` exists.
        CardError: the target does not support a task.
        VerifyError: the image's results differ from the networks'.
    """
    target = card_target(plan.card.device.target)
    check, missing = None, ""
    written = _written(target, out) if replace else ()
    with new_directory(out, replace=replace, written=written) as directory:
        _write(target, plan, directory, library_versions())
        if verify:
            try:
                check = target.verify_card(plan, directory, packets)
            except MissingDependencyError as error:
                missing = str(error)
        if check is not None:
            write_atomic(directory / VERIFICATION, json_text(asdict(check)))
            write_atomic(directory / "report.md", report_text(plan, check, target.beyond))
    return ExportedCard(out, check, missing)


def verify_card(plan: CardPlan, directory: Path, packets: int) -> CardCheck:
    """Verify an export: it must equal a fresh one byte for byte, and compute the networks.

    Only files that equal freshly written ones are run. Products of a build are ignored.

    Raises:
        UsageError: the directory does not exist.
        VerifyError: a file is missing, changed or unknown, or an answer differs.
    """
    target = card_target(plan.card.device.target)
    with _written_anew(target, plan, directory) as fresh:
        return target.verify_card(plan, fresh, packets)


def change_card(plan: CardPlan, directory: Path, change: CardChange, to: str) -> str:
    """Change a card that runs an export; see :meth:`CardTarget.change_card`.

    Args:
        plan: plan of the card.
        directory: the running export.
        change: the change.
        to: address as for :meth:`CardTarget.change_card`.

    Raises:
        UsageError: the directory does not exist, or no such card is running.
        VerifyError: the directory differs from a fresh export of the plan.
    """
    target = card_target(plan.card.device.target)
    # The change must meet the image that runs, so nothing is sent if the directory differs from the
    # plan.
    with _written_anew(target, plan, directory):
        return target.change_card(plan, change, to)


def open_card(plan: CardPlan, directory: Path, threads: int) -> RunningCard:
    """Open an export on this machine; see :meth:`CardTarget.open_card`.

    Raises:
        UsageError: the directory does not exist, or its target runs on devices only.
        VerifyError: the directory differs from a fresh export of the plan.
    """
    target = card_target(plan.card.device.target)
    with _written_anew(target, plan, directory) as fresh:
        return target.open_card(plan, fresh, threads)


def check_directory(directory: Path) -> None:
    """Check that a directory is an exported card.

    Raises:
        UsageError: it is not. The error says so if it is the export of a single model.
    """
    written = _manifest(directory).get("format")
    if written == FORMAT:
        raise UsageError(f"{directory} is the export of one model: n3ic verify {directory}")
    if written != CARD_FORMAT:
        raise UsageError(
            f"{directory} is not an exported card, expected what n3ic card export wrote"
        )


@contextmanager
def _written_anew(target: CardTarget, plan: CardPlan, directory: Path) -> Iterator[Path]:
    """Write a fresh export of a plan, and check that a directory equals it."""
    check_directory(directory)
    with tempfile.TemporaryDirectory(prefix="n3ic-card-") as name:
        fresh = Path(name) / "card"
        fresh.mkdir()
        # Fresh files are run instead of those on disk: nothing from the directory is ever executed.
        _write(target, plan, fresh, claimed_versions(directory))
        own_files = {name for name in files_of(directory) if not target.is_product(name)}
        written = files_of(fresh)
        for file in sorted({*written, *own_files} - {VERIFICATION, "report.md"}):
            if file not in written:
                raise VerifyError(f"{file}: n3ic writes no such file for this card")
            if file not in own_files:
                raise VerifyError(f"{file}: missing from {directory}")
            if why := difference(directory / file, fresh / file, "this card"):
                raise VerifyError(f"{file}: {why}")
        yield fresh


def report_text(plan: CardPlan, check: CardCheck, beyond: str) -> str:
    """Format the report of a card as Markdown; ``beyond`` as in :class:`CardTarget`."""
    lines = [
        f"# {escaped(plan.card.name)}",
        "",
        f"Verified with {escaped(check.executor)}: {check.packets:,} packets of all graphs in "
        f"random order, {check.inferences:,} inferences equal in {check.compared}.",
        "",
        beyond,
        "",
    ]
    rows = [[name, f"{count:,}"] for name, count in check.graphs.items()]
    lines += table(["graph", "packets"], rows)
    figures = [[f.name, f"{f.value:g} {f.unit}", f.kind, f.source] for f in check.figures]
    lines += ["", *table(["figure", "value", "kind", "source"], figures)] if figures else []
    return "\n".join(lines) + "\n"


def _write(
    target: CardTarget, plan: CardPlan, directory: Path, libraries: Mapping[str, str]
) -> None:
    target.write_card(plan, directory)
    write_atomic(directory / "plan.json", json_text(plan.to_dict()))
    # These two are written after all files of the image, because they list them with their hashes.
    write_card_bill_of_materials(
        directory,
        plan.card.device.target,
        plan.card.name,
        {
            name: network_of(plan.card, name).digest
            for name, task in plan.card.tasks.items()
            if isinstance(task, NetworkTask | InputStage)
        },
        f"n3ic {__version__}",
        libraries,
        files_of(directory),
    )
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
    """Return the files of a replaceable export: those of its manifest, and products of a build."""
    manifest = _manifest(out)
    names = manifest.get("files") if manifest.get("format") == CARD_FORMAT else None
    if not isinstance(names, dict) or not names:
        return ()
    built = (name for name in files_of(out) if target.is_product(name))
    return (*names, MANIFEST, VERIFICATION, "report.md", *built)


def _manifest(directory: Path) -> dict[str, Any]:
    """Read the manifest of a directory; empty if it cannot be read."""
    try:
        manifest = json.loads(read_regular(directory / MANIFEST, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}
