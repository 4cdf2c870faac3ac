# SPDX-License-Identifier: Apache-2.0
"""Loads a program on an interface, updates its models, changes verdicts, and unloads it.

``n3icd`` owns the interface: all of this is a request to it, or its start and its end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

from n3ic.errors import ExportError, UsageError
from n3ic.exporters.xdp import layout, packing, policy_parser, source, verdict_lists
from n3ic.exporters.xdp.plan import Choices, plan
from n3ic.exporters.xdp.resident import check_slot
from n3ic.exporters.xdp.verdict_lists import Action
from n3ic.model.classifier import SHUNT, SHUNT_NAME, Classifier
from n3ic.model.layered import in_layers
from n3ic.systems.xdp import daemon_requests
from n3ic.systems.xdp.daemon_start import (
    daemon_program,
    end,
    files_of,
    is_own,
    start,
    started,
    starting,
    wait_for_end,
)
from n3ic.systems.xdp.hooks import check_hook
from n3ic.systems.xdp.prefix_files import read_prefix_file
from n3ic.systems.xdp.program_record import (
    Interface,
    ProgramRecord,
    find_record,
    read_record,
    remove_record,
)
from n3ic.targets.manifest import exported_network, read_manifest


@dataclass(frozen=True)
class Deployment:
    """Result of loading.

    Attributes:
        record: record of the program, as stored.
        note: a remark for the user; may be empty.
        flows: how many flows the table has room for.
    """

    record: ProgramRecord
    note: str = ""
    flows: int = 0


def load(
    interface: Interface,
    export: Path,
    choices: Choices = Choices(),  # noqa: B008 - frozen
    *,
    mode: str = "auto",
    priority: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Deployment:
    """Start n3icd in the background with the program of an export directory.

    If the n3icd of an earlier load was killed, the new one goes on with its flows.

    Args:
        interface: interface to attach to.
        export: a directory written by ``n3ic export --target xdp`` from a network with a meter;
            where ``make`` has built it, its own n3icd is started, and nothing is compiled.
        choices: policies, rules, limits and sizes.
        mode: ``native``, ``generic``, ``auto`` (native if the driver supports it, otherwise
            generic), or ``tcx``: both directions of the stack's hook.
        priority: order among other XDP programs in libxdp's dispatcher, lower ones first; None
            means libxdp's default if a dispatcher is attached, otherwise to run alone.
        settings: further settings of n3icd, such as ``prometheus``, as in ``n3icd.conf``.

    Raises:
        UsageError: A program is already attached, n3icd does not start, or see
            :func:`~n3ic.exporters.xdp.plan.plan`.
        ExportError: The directory is not an XDP export, or a network does not fit its program.
        MissingDependencyError: A compiler or libbpf's headers are missing.
    """
    model, per_cpu, table = exported(export)
    policy_parser.check_times(model)
    planned = plan(model, table, choices)
    check_hook(interface.name, planned.acts, mode)
    _check_free(interface)
    options = {"table": table, "windows": "per-cpu" if per_cpu else "shared"}
    given = {"mode": mode, **(settings or {})}
    if priority is not None:
        given["priority"] = str(priority)
    with daemon_program(model, options, export) as program, starting(interface):
        _check_free(interface)
        pack = packing.pack(program.export, planned)
        note = start(interface, program.files, pack, given, succeeds=True)
    record = read_record(interface)
    return Deployment(record, note, daemon_requests.figures(interface, record)["room"])


def _check_free(interface: Interface) -> None:
    record = find_record(interface)
    if record is not None and daemon_requests.runs(record):
        raise UsageError(
            f"{interface.name}: n3ic has loaded program {record.program_id} there already: "
            f"n3ic xdp update {interface.name} MODEL swaps its model while packets flow; for other "
            f"policies, rules or sizes, n3ic xdp unload {interface.name} and load again"
        )


@dataclass(frozen=True)
class ModelUpdate:
    """Result of an update.

    Attributes:
        slot: the slot that now holds the model.
        note: why the program was also replaced; empty if only the map changed.
    """

    slot: int
    note: str = ""


def update(
    interface: Interface,
    model: Classifier,
    slot: int | None = None,
    *,
    export: Path | None = None,
) -> ModelUpdate:
    """Replace a model while traffic flows; every packet sees the old or the new model, never a mix.

    A network whose structure is not compiled into the program needs a new program, which an n3icd
    of its own brings. It takes over flows, counters, verdicts and policies, and replaces the old
    one atomically.

    Args:
        interface: interface of the program.
        model: a network with the same meter, and with the same classes if there are policies.
        slot: slot to update; None means the slot of flows without a matching rule.
        export: the XDP export of the network; if ``make`` has built it, a new program needs no
            compiler.

    Raises:
        ExportError: The network has another meter or other classes, or does not fit the program of
            an n3icd that :func:`load` did not start.
        MissingDependencyError: A new program is needed, and a compiler is missing.
        UsageError: n3icd is not running, or refuses.
    """
    model, record = in_layers(model), read_record(interface)
    place = _check_update(interface, record, model, slot)
    try:
        daemon_requests.update(interface, record, place, model)
    except ExportError as error:
        if not is_own(interface, record):
            raise ExportError(
                f"{error}; n3icd takes networks of its program's structure (n3ic train --input-of "
                "the present one): for others, build an export's n3icd (make dist), and start it "
                "with --succeed"
            ) from error
        _succeed(interface, record, model, place, export)
        return ModelUpdate(place, f"a new program, which took over the flows: {error}")
    return ModelUpdate(place)


def _check_update(
    interface: Interface, record: ProgramRecord, model: Classifier, slot: int | None
) -> int:
    """Check a model against a program; return the slot that is to hold it."""
    if model.meter != record.spec:
        raise ExportError(
            f"{model.name}: its meter is not the program's: load an export of it instead"
        )
    classes = packing.residents(record.pack)[record.otherwise].classes
    if record.policies and model.classes != classes:
        raise ExportError(
            f"{model.name} decides among {', '.join(model.classes)}, but the policies of "
            f"{interface.name} are for the classes {', '.join(classes)}: load an export instead"
        )
    place = record.otherwise if slot is None else slot
    check_slot(place)
    return place


def _succeed(
    interface: Interface,
    record: ProgramRecord,
    model: Classifier,
    slot: int,
    export: Path | None,
) -> None:
    """Replace the n3icd of an interface by one whose program is compiled for another network."""
    compiled = record.compiled
    if len(model.classes) != len(compiled.classes):
        raise ExportError(
            f"{model.name}: {len(model.classes)} classes, the program counts "
            f"{len(compiled.classes)}: load an export instead"
        )
    options = {"table": record.table, "windows": "per-cpu" if record.per_cpu else "shared"}
    with (
        daemon_program(model, options, export) as program,
        starting(interface),
    ):
        try:
            pack = packing.repack(record.pack, slot, model, (program.export, model))
        except ExportError as error:
            raise ExportError(
                f"{error}: what other slots hold does not fit a program for {model.name}: update "
                "them as well, or load an export of a network that is as large as all of them"
            ) from error
        before = files_of(interface)
        daemon_requests.leave(record)
        wait_for_end(interface)
        try:
            start(interface, program.files, pack, succeeds=True)
        except UsageError:
            start(interface, before, record.pack)
            raise


def unload(interface: Interface) -> bool:
    """Detach n3ic's program from an interface and remove all that belongs to it.

    Returns:
        False if there was no program.

    Raises:
        UsageError: n3icd refuses, or this is not permitted.
    """
    record, damaged = None, False
    try:
        record = find_record(interface)
    except UsageError:
        if not started(interface):
            raise
        damaged = True
    if record is not None and not is_own(interface, record):
        daemon_requests.unload(record)
    elif started(interface):
        end(interface)
    remove_record(interface)
    return damaged or record is not None


def put_verdict(
    interface: Interface, what: str, action: Action, argument: int, ttl_s: float | None
) -> str:
    """Put an operator's verdict into the maps of an interface's program.

    Args:
        interface: interface of the program.
        what: an address, a prefix or a flow, as typed.
        action: what happens to its packets; ``allow`` puts it on the list of allowed sources.
        argument: nanoseconds between two packets for a rate limit, or the mark.
        ttl_s: seconds for which it holds; None for ever.

    Returns:
        The target as :func:`listed` shows it.

    Raises:
        UsageError: No program is loaded there, or ``what`` is not a target.
    """
    record = read_record(interface)
    text = verdict_lists.verdict_subject(what, record.spec).text
    targets = [(text, inf if ttl_s is None else ttl_s)]
    daemon_requests.put(interface, record, action, argument, targets)
    return text


@dataclass(frozen=True)
class ImportedList:
    """Result of putting a file's prefixes on a list.

    Attributes:
        entries: prefixes of the file that hold now.
        new: those that had no such verdict before.
        left_out: decisions of the file that block no address now.
    """

    entries: int
    new: int
    left_out: int


def put_file(
    interface: Interface, path: Path, action: Action, argument: int, ttl_s: float | None
) -> ImportedList:
    """Put an operator's verdicts on the prefixes of a file into the maps.

    Args:
        interface: interface of the program.
        path: a file as :func:`~n3ic.systems.xdp.prefix_files.read_prefix_file` reads it.
        action: what happens to packets; ``allow`` puts the prefixes on the list of allowed sources.
        argument: nanoseconds between two packets for a rate limit, or the mark.
        ttl_s: seconds for which entries hold at most; None: as long as the file says, or for ever.

    Raises:
        UsageError: No program is loaded there, entries of the file are wrong, or there is no room
            for all of them. Nothing was changed.
    """
    listed = read_prefix_file(path, bans=action not in verdict_lists.ALLOWING)
    seconds = np.minimum(listed.seconds, inf if ttl_s is None else ttl_s)
    keys = listed.keys
    texts = verdict_lists.prefix_texts(
        keys["address"], keys["family"], keys["bits"] - layout.PREFIX_FAMILY
    )
    targets = zip(texts, seconds.tolist(), strict=True)
    new = daemon_requests.put(interface, read_record(interface), action, argument, targets)
    return ImportedList(len(seconds), new, listed.left_out)


def remove_verdicts(interface: Interface, what: str, *, allowed: bool) -> bool:
    """Remove the verdicts on a target from the maps.

    Args:
        interface: interface of the program.
        what: an address, a prefix or a flow, as typed.
        allowed: True removes it from the list of what is allowed, False removes all other
            verdicts on it.

    Returns:
        False if there were none.

    Raises:
        UsageError: No program is loaded there, or ``what`` is not a target.
    """
    record = read_record(interface)
    text = verdict_lists.verdict_subject(what, record.spec).text
    return daemon_requests.remove(interface, record, text, allowed=allowed)


def listed_verdicts(interface: Interface) -> dict[str, list[verdict_lists.ListedVerdict]]:
    """Verdicts that hold on an interface, by list; see :func:`~.verdict_lists.list_verdicts`."""
    record = read_record(interface)
    maps = daemon_requests.dumped_verdicts(interface, record)
    tick_ns = record.spec.tick_ns
    coarse = 6  # CLOCK_MONOTONIC_COARSE, for which Python's time module has no constant
    clock = coarse if record.clock == "coarse" else time.CLOCK_MONOTONIC
    network = packing.residents(record.pack).get(record.otherwise)
    named = {SHUNT: SHUNT_NAME} | dict(enumerate(network.classes if network else ()))
    return verdict_lists.list_verdicts(
        maps, time.clock_gettime_ns(clock) // tick_ns, tick_ns, named
    )


def exported(export: Path) -> tuple[Classifier, bool, source.Table]:
    """Read an export's network, whether its windows are per CPU, and its flow table.

    Raises:
        ExportError: The directory is not an XDP export.
        ModelError: The model is missing or damaged.
    """
    manifest = read_manifest(export)
    if manifest["target"] != "xdp":
        raise ExportError(f"{export}: an export for {manifest['target']}, expected one for xdp")
    options = manifest["options"]
    if "table" not in options:
        raise ExportError(
            f"{export}: written by an older n3ic, whose programs have other maps: export it again"
        )
    model = exported_network(export, manifest).model
    return model, options["windows"] == "per-cpu", source.table_of(options)
