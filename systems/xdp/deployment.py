# SPDX-License-Identifier: Apache-2.0
"""Loads a program on an interface, updates its models, changes verdicts, and unloads it."""

from __future__ import annotations

import errno
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import numpy as np

from n3ic.errors import ExportError, MissingDependencyError, UsageError, VerifyError
from n3ic.exporters.xdp import layout, packing, policy_parser, source, verdict_lists
from n3ic.exporters.xdp.exported import MAX_BYTES, read_program
from n3ic.exporters.xdp.libbpf import (
    AttachedProgram,
    AttachMode,
    BpfError,
    attach,
    program_by_id,
)
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.exporters.xdp.plan import CPU_QUEUE, Choices, Plan, plan
from n3ic.exporters.xdp.program import Clock, MeterPrograms
from n3ic.exporters.xdp.resident import check_slot
from n3ic.exporters.xdp.verdict_lists import SECOND_NS, Action
from n3ic.model.classifier import SHUNT, SHUNT_NAME, Classifier
from n3ic.model.layered import in_layers
from n3ic.model.meter_spec import MeterSpec
from n3ic.systems.xdp import daemon_requests, dispatcher
from n3ic.systems.xdp.daemon_start import (
    daemon_folder,
    daemon_program,
    files_of,
    start,
    starting,
    wait_for_end,
)
from n3ic.systems.xdp.hooks import METERS, check_hook, detach, query, ways
from n3ic.systems.xdp.prefix_files import read_prefix_file
from n3ic.systems.xdp.program_record import (
    DaemonRecord,
    Interface,
    ProgramRecord,
    changing,
    daemon_record,
    forget_others,
    read_model,
    read_record,
    recorded_programs,
    remove_record,
    write_model,
    write_record,
)
from n3ic.targets.manifest import exported_network, read_manifest
from n3ic.util.files import read_regular

OBJECT = "meter.o"
_TRIES = 3
_AGES_S = 1e9  # seconds that count as for ever
_NOT_NATIVE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ERANGE)
"""What drivers answer that lack XDP, or lack it in this set-up or at this MTU (veth)."""


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
    mode: AttachMode | None = None,
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
        mode: attach mode; ``tcx`` attaches to both directions of the stack's hook; None means
            native if the driver supports it, otherwise generic.
        priority: order among other XDP programs in libxdp's dispatcher, lower ones first; None
            means libxdp's default if a dispatcher is attached, otherwise to run alone.
        settings: further settings of n3icd, such as ``prometheus``, as in ``n3icd.conf``.

    Raises:
        UsageError: A program is already attached, n3icd does not start, or see
            :func:`~n3ic.exporters.xdp.plan.plan`.
        ExportError: The directory is not an XDP export, or a network does not fit its program.
        MissingDependencyError: A compiler or libbpf's headers are missing.
    """
    if mode != "tcx" and (
        priority is not None or dispatcher.dispatched(interface.index) is not None
    ):
        return _load_beside(interface, export, choices, mode=mode, priority=priority)
    model, per_cpu, table = exported(export)
    policy_parser.check_times(model)
    planned = plan(model, table, choices)
    check_hook(interface.name, planned.acts, mode)
    _check_free(interface, mode)
    options = {"table": table, "windows": "per-cpu" if per_cpu else "shared"}
    with daemon_program(model, options, export) as program, starting(interface):
        _check_free(interface, mode)
        note = start(
            interface,
            program.files,
            packing.pack(program.export, planned),
            {"mode": mode or "auto", **(settings or {})},
            succeeds=_killed(interface) is not None,
        )
    record, _ = attached_program(interface)
    room = (
        daemon_requests.figures(interface, record)["room"]
        if isinstance(record, DaemonRecord)
        else 0
    )
    return Deployment(record, note, room)


def _killed(interface: Interface) -> DaemonRecord | None:
    """The record of a program here whose n3icd, started by :func:`load`, is gone."""
    attached = query(interface.index)
    record = daemon_record(interface, attached.program_id) if attached else None
    if record is None or not daemon_folder(interface).exists() or daemon_requests.runs(record):
        return None
    return record


def _load_beside(
    interface: Interface,
    export: Path,
    choices: Choices = Choices(),  # noqa: B008 - frozen
    *,
    mode: AttachMode | None = None,
    priority: int | None = None,
) -> Deployment:
    """Attach a program beside others by libxdp's dispatcher; n3icd has no part in it.
    """
    model, per_cpu, table = exported(export)
    policy_parser.check_times(model)
    planned = plan(model, table, choices)
    choices = planned.choices
    check_hook(interface.name, planned.acts, mode)
    rules = [policy_parser.rule(text) for text in choices.rules]
    place, structure = export / "meter", structure_of([model])
    _check_free(interface, mode)
    if mode != "tcx":
        beside = dispatcher.dispatched(interface.index)
        priority = dispatcher.PRIORITY if beside and priority is None else priority
        mode = beside.mode if beside and mode is None else mode
    image = _image(place)
    refused: list[BpfError] = []
    for way, frags in ways(mode):
        with (
            changing(interface),
            MeterPrograms(
                image,
                str(place / OBJECT),
                planned.spec,
                structure,
                clock=choices.clock,
                table=table,
                flows=choices.flows,
                limits=choices.limits,
                verdicts=choices.room,
                hook="tcx" if way == "tcx" else "xdp",
                frags=frags,
            ) as programs,
        ):
            _check_free(interface, mode)
            remove_record(interface)  # a program that was detached by other means may have left one
            _fill(programs, structure, planned)
            programs.set_rules(rules, choices.otherwise)
            record = ProgramRecord(
                programs.program.id,
                way,
                str(export.resolve()),
                choices.clock,
                per_cpu,
                choices.policies,
                choices.rules,
                choices.otherwise,
                table,
                frags,
                priority,
            )
            try:
                for network in planned.models.values():
                    write_model(interface, network)
                write_record(interface, record, image, [model])
                attached = _attach(interface, programs, record, image)
                if isinstance(attached, ProgramRecord):
                    write_record(interface, attached, image, [model])
                    note = _note(interface, way, refused) or _alone(attached, priority)
                    return Deployment(attached, note, programs.room)
                refused.append(attached)
            except BaseException:
                remnant = query(interface.index)
                if remnant is not None and remnant.program_id == record.program_id:
                    detach(interface.index, remnant, programs.program)
                remove_record(interface)
                raise
            remove_record(interface)
    raise refused[-1]


def _fill(programs: MeterPrograms, structure: Structure, planned: Plan) -> None:
    """Put networks and policies into the maps."""
    for slot, network in planned.models.items():
        programs.set_model(slot, value_bytes(structure, network))
    rows, interfaces = planned.policies()
    for i, name in interfaces.items():
        programs.maps["interfaces"].update(i, policy_parser.index_of(name))
    for cpu in planned.cpus:
        programs.maps["cpus"].update(cpu, CPU_QUEUE)
    for i, row in rows.items():
        programs.maps["policies"].update(i, row)


@contextmanager
def open_program(
    interface: Interface, *, ending: bool = False
) -> Iterator[tuple[ProgramRecord, MeterPrograms, dict[int, Classifier]]]:
    """Open the program of an interface.

    Args:
        interface: interface of the program.
        ending: whether the block also ends idle flows, which takes one more program.

    Yields:
        The record, the maps, and the resident models by slot.

    Raises:
        UsageError: n3ic has loaded no program there, or it has been replaced since.
    """
    program = None
    while program is None:
        record, image, compiled = _attached(interface)
        try:
            program = program_by_id(record.program_id)
        except BpfError:
            if _attached(interface)[0].program_id == record.program_id:
                raise
    spec = compiled[0].meter
    if spec is None:
        program.close()
        raise UsageError(f"{interface.folder}: damaged; unload and load again")
    with (
        program,
        MeterPrograms(
            image,
            OBJECT,
            spec,
            structure_of(compiled),
            attached=program,
            ending=ending,
            table=record.table,
        ) as programs,
    ):
        yield record, programs, residents(interface, programs)


def is_attached(interface: Interface, record: ProgramRecord) -> bool:
    """Whether a program is still attached; an update may have replaced it.

    Raises:
        UsageError: The interface no longer exists.
    """
    attached = _query(interface)
    return attached is not None and attached.program_id == record.program_id


def _query(interface: Interface) -> AttachedProgram | None:
    """The program of an interface.

    Raises:
        UsageError: The interface no longer exists.
    """
    try:
        attached = query(interface.index)
        if attached is None:
            socket.if_indextoname(interface.index)
    except (OSError, BpfError) as error:
        if isinstance(error, BpfError) and error.number != errno.ENODEV:
            raise
        raise UsageError(
            f"{interface.name}: the interface was removed, and its program with it"
        ) from error
    return attached


def residents(interface: Interface, programs: MeterPrograms) -> dict[int, Classifier]:
    """The models that are now in the kernel's map, by slot; those without a record are left out."""
    networks: dict[int, Classifier] = {}
    for _ in range(_TRIES):
        digests = programs.digests()
        networks = {}
        for slot, digest in digests.items():
            with suppress(FileNotFoundError):  # an update swapped the model and removed its file
                networks[slot] = read_model(interface, digest)
        if len(networks) == len(digests):
            break
    return networks


def attached_program(interface: Interface) -> tuple[ProgramRecord, list[Classifier]]:
    """The record of an interface's program, and the networks for whose structure it was compiled.

    Raises:
        UsageError: n3ic has loaded no program there, or it has been replaced since.
    """
    record, _, compiled = _attached(interface)
    return record, compiled


def _attached(interface: Interface) -> tuple[ProgramRecord, bytes, list[Classifier]]:
    """The record, object file and networks of the program that is attached now."""
    attached = _query(interface)
    try:
        record, image, compiled = _recorded(interface, attached)
    except UsageError:
        if _query(interface) == attached:
            raise
        return _attached(interface)  # an update has replaced the program: read the new record
    return replace(record, mode=(attached and attached.mode) or record.mode), image, compiled


def _recorded(
    interface: Interface, attached: AttachedProgram | None
) -> tuple[ProgramRecord, bytes, list[Classifier]]:
    """The record, object file and networks of the attached program."""
    recorded = recorded_programs(interface)
    if attached is not None and not recorded and _name_of(attached.program_id) in METERS:
        raise UsageError(_of_daemon(interface, attached.program_id))
    if recorded and (attached is None or attached.program_id not in recorded):
        now = "nothing" if attached is None else f"program {attached.program_id}"
        raise UsageError(
            f"{interface.name}: n3ic loaded program {recorded[-1]}, but {now} is attached "
            f"there now; n3ic xdp unload {interface.name} forgets it"
        )
    return read_record(interface, attached.program_id if attached else 0)


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

    A network whose structure is not compiled into the program needs a new program. The new program
    takes over flows, counters and policies. It replaces the old one atomically, except in libxdp's
    dispatcher, where packets pass unmetered for a moment.

    Args:
        interface: interface of the program.
        model: a network with the same meter, and with the same classes if there are policies.
        slot: slot to update; None means the slot of flows without a matching rule.
        export: the XDP export of the network. Its object file is used if a new program is needed,
            clang is missing, and all slots hold this network.

    Raises:
        ExportError: The network has another meter or other classes, or exceeds the limits of BPF.
        MissingDependencyError: A new program is needed, clang is missing, and no export's object
            file fits.
    """
    model = in_layers(model)
    of, compiled = attached_program(interface)
    if isinstance(of, DaemonRecord):
        return _update_daemon(interface, of, compiled[0], model, slot, export)
    with changing(interface), open_program(interface) as (record, programs, models):
        place = _check_update(interface, record, programs.spec, models, model, slot)
        write_model(interface, model)
        models[place], attached = model, record.program_id
        try:
            programs.set_model(place, value_bytes(programs.structure, model))
        except ExportError as error:
            attached = _succeed(interface, record, programs, models, export)
            note = f"a new program, which took over the flows: {error}"
        else:
            programs.clear_tally(place)
            note = ""
        forget_others(interface, attached, {m.digest for m in models.values()})
    return ModelUpdate(place, note)


def _check_update(
    interface: Interface,
    record: ProgramRecord,
    spec: MeterSpec,
    models: Mapping[int, Classifier],
    model: Classifier,
    slot: int | None,
) -> int:
    """Check a model against a program; return the slot that is to hold it."""
    if model.meter != spec:
        raise ExportError(
            f"{model.name}: its meter is not the program's: load an export of it instead"
        )
    classes = models[record.otherwise].classes
    if record.policies and model.classes != classes:
        raise ExportError(
            f"{model.name} decides among {', '.join(model.classes)}, but the policies of "
            f"{interface.name} are for the classes {', '.join(classes)}: load an export instead"
        )
    place = record.otherwise if slot is None else slot
    check_slot(place)
    return place


def _update_daemon(
    interface: Interface,
    record: DaemonRecord,
    compiled: Classifier,
    model: Classifier,
    slot: int | None,
    export: Path | None,
) -> ModelUpdate:
    """Have n3icd swap a model; or replace it, if it was started here, by one of its structure."""
    if compiled.meter is None:
        raise UsageError(f"{interface.folder}: damaged; unload and load again")
    place = _check_update(
        interface, record, compiled.meter, packing.residents(record.pack), model, slot
    )
    try:
        daemon_requests.update(interface, record, place, model)
    except ExportError as error:
        if not daemon_folder(interface).exists():
            raise ExportError(
                f"{error}; n3icd takes networks of its program's structure (n3ic train --input-of "
                "the present one): for others, build an export's n3icd (make dist), and start it "
                "with --succeed"
            ) from error
        _succeed_daemon(interface, record, compiled, model, place, export)
        return ModelUpdate(place, f"a new program, which took over the flows: {error}")
    return ModelUpdate(place)


def _succeed_daemon(
    interface: Interface,
    record: DaemonRecord,
    compiled: Classifier,
    model: Classifier,
    slot: int,
    export: Path | None,
) -> None:
    """Replace the n3icd of an interface by one whose program is compiled for another network."""
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
        pack = packing.repack(record.pack, slot, model, (program.export, model))
        before = files_of(interface)
        daemon_requests.leave(record)
        wait_for_end(daemon_folder(interface))
        try:
            start(interface, program.files, pack, succeeds=True)
        except UsageError:
            start(interface, before, record.pack)
            raise


def _succeed(
    interface: Interface,
    record: ProgramRecord,
    programs: MeterPrograms,
    models: Mapping[int, Classifier],
    export: Path | None,
) -> int:
    """Replace the attached program by one that is compiled for all resident models.

    Returns:
        The new program's number in the kernel.
    """
    compiled = list(models.values())
    structure = structure_of(compiled)
    if structure.classes != programs.structure.classes:
        raise ExportError(
            f"networks of {structure.classes} classes, the program counts "
            f"{programs.structure.classes}: load an export instead"
        )
    files = source.meter_program(
        programs.spec, structure, per_cpu=record.per_cpu, table=record.table
    )
    try:
        image = source.compile_program(files, source.METER)
    except MissingDependencyError as error:
        image = _built(export, models, record, error)
        compiled = compiled[:1]
        structure = structure_of(compiled)  # the structure of the export
    clock: Clock = "coarse" if record.clock == "coarse" else "kernel"
    with MeterPrograms(
        image,
        OBJECT,
        programs.spec,
        structure,
        clock=clock,
        table=record.table,
        hook="tcx" if record.mode == "tcx" else "xdp",
        frags=record.frags,
        succeeds=programs.program,
    ) as following:
        for slot, model in models.items():
            following.set_model(slot, value_bytes(structure, model))
        new = replace(record, program_id=following.program.id)
        write_record(interface, new, image, compiled)
        if record.priority is None:
            attach(interface.index, following.program, record.mode, replaces=programs.program)
            return new.program_id
        # Detach first: both at once would count packets twice. Some packets now pass unmetered.
        dispatcher.detach(interface.index, record.program_id, record.mode)
        successor = _attach(interface, following, new, image)
        if isinstance(successor, BpfError):
            raise successor
        write_record(interface, successor, image, compiled)
        return successor.program_id


def _built(
    export: Path | None,
    models: Mapping[int, Classifier],
    record: ProgramRecord,
    error: MissingDependencyError,
) -> bytes:
    """The object file of an export, if it serves all resident models."""
    if len({model.digest for model in models.values()}) > 1:
        slots = ", ".join(map(str, sorted(models)))
        why = f"no export has a program for the models of slots {slots} together"
    elif export is None or not (export / "meter" / OBJECT).is_file():
        why = f"no built meter/{OBJECT} was given (an XDP export has one after make)"
    elif exported(export)[1] != record.per_cpu:
        why = f"the windows of {export} are over other flows than the program's (--windows)"
    elif exported(export)[2] != record.table:
        why = f"the flow table of {export} is another one than the program's (--table)"
    else:
        return _image(export / "meter")
    raise MissingDependencyError(
        f"a new program is needed, and {why}: {error}; a network that is trained with n3ic train "
        "--input-of the present one needs none"
    )


def unload(interface: Interface) -> bool:
    """Detach n3ic's program from an interface and remove its record.

    Returns:
        False if there was neither a program nor a record.

    Raises:
        UsageError: The attached program was not loaded by n3ic.
    """
    recorded = interface.folder.exists()
    with changing(interface):
        attached = query(interface.index)
        if attached is not None:
            with program_by_id(attached.program_id) as program:
                if program.name not in METERS:
                    raise UsageError(
                        f"{interface.name}: program {attached.program_id} ({program.name}) is not "
                        f"n3ic's; detach it with ip link set dev {interface.name} xdp off"
                    )
                daemon = daemon_record(interface, attached.program_id)
                if daemon is not None:
                    daemon_requests.unload(daemon)
                    if daemon_folder(interface).exists():
                        wait_for_end(daemon_folder(interface))
                        shutil.rmtree(daemon_folder(interface))
                    remove_record(interface)
                    return True
                try:
                    detach(interface.index, attached, program)
                except BpfError as error:
                    if recorded_programs(interface):
                        raise
                    raise UsageError(_of_daemon(interface, attached.program_id)) from error
        remove_record(interface)
    return attached is not None or recorded


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
    of, spec = _metered(interface)
    if isinstance(of, DaemonRecord):
        text = verdict_lists.verdict_subject(what, spec).text
        daemon_requests.put(
            interface, of, action, argument, [(text, inf if ttl_s is None else ttl_s)]
        )
        return text
    with changing(interface), open_program(interface) as (record, programs, _):
        where = verdict_lists.verdict_subject(what, programs.spec)
        tick_ns = programs.spec.tick_ns
        now = now_of(record, tick_ns)
        until = None if ttl_s is None else now + int(ttl_s * SECOND_NS) // tick_ns
        verdict_lists.set_verdict(programs.maps, where, action, argument, now, until)
    return where.text


def _metered(interface: Interface) -> tuple[ProgramRecord, MeterSpec]:
    """The record of an interface's program, and its meter."""
    record, compiled = attached_program(interface)
    if compiled[0].meter is None:
        raise UsageError(f"{interface.folder}: damaged; unload and load again")
    return record, compiled[0].meter


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
    of, _ = _metered(interface)
    if isinstance(of, DaemonRecord):
        keys = listed.keys
        texts = verdict_lists.prefix_texts(
            keys["address"], keys["family"], keys["bits"] - layout.PREFIX_FAMILY
        )
        targets = zip(texts, seconds.tolist(), strict=True)
        new = daemon_requests.put(interface, of, action, argument, targets)
        return ImportedList(len(seconds), new, listed.left_out)
    with changing(interface), open_program(interface) as (record, programs, _):
        tick_ns = programs.spec.tick_ns
        now = now_of(record, tick_ns)
        until = np.full(len(seconds), layout.FOR_EVER, np.uint64)
        ends = seconds < _AGES_S
        until[ends] = now + (seconds[ends] * SECOND_NS).astype(np.uint64) // tick_ns
        new = verdict_lists.set_verdicts(
            programs.maps, str(path), listed.keys, action, argument, now, until
        )
    return ImportedList(len(until), new, listed.left_out)


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
    of, spec = _metered(interface)
    if isinstance(of, DaemonRecord):
        text = verdict_lists.verdict_subject(what, spec).text
        return daemon_requests.remove(interface, of, text, allowed=allowed)
    with changing(interface), open_program(interface) as (_, programs, _):
        return verdict_lists.remove_verdict(
            programs.maps, verdict_lists.verdict_subject(what, programs.spec), allowed=allowed
        )


def listed_verdicts(interface: Interface) -> dict[str, list[verdict_lists.ListedVerdict]]:
    """Verdicts that hold on an interface, by list; see :func:`~.verdict_lists.list_verdicts`."""
    of, spec = _metered(interface)
    if isinstance(of, DaemonRecord):
        maps = daemon_requests.dumped_verdicts(interface, of)
        now = now_of(of, spec.tick_ns)
        held = packing.residents(of.pack).get(of.otherwise)
        named = {SHUNT: SHUNT_NAME} | dict(enumerate(held.classes if held else ()))
        return verdict_lists.list_verdicts(maps, now, spec.tick_ns, named)
    with open_program(interface) as (record, programs, models):
        tick_ns, names = programs.spec.tick_ns, {SHUNT: SHUNT_NAME}
        if record.otherwise in models:
            names |= dict(enumerate(models[record.otherwise].classes))
        return verdict_lists.list_verdicts(programs.maps, now_of(record, tick_ns), tick_ns, names)


def now_of(record: ProgramRecord, tick_ns: int) -> int:
    """The current time of the program's clock, in ticks of its meter."""
    coarse = 6  # CLOCK_MONOTONIC_COARSE, for which Python's time module has no constant
    clock = coarse if record.clock == "coarse" else time.CLOCK_MONOTONIC
    return time.clock_gettime_ns(clock) // tick_ns


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


def _image(place: Path) -> bytes:
    """The object file that ``make`` built in a folder, or one compiled now."""
    try:
        return read_regular(place / OBJECT, MAX_BYTES)
    except FileNotFoundError:
        return source.compile_program(read_program(place), source.METER)
    except OSError as error:
        raise VerifyError(f"{place / OBJECT}: {error.strerror or error}") from error


def _check_free(interface: Interface, mode: AttachMode | None) -> None:
    attached = query(interface.index)
    if attached is None:
        return
    name = _name_of(attached.program_id)
    if name in METERS and _killed(interface) is not None:
        return
    if name in METERS and not recorded_programs(interface):
        raise UsageError(_of_daemon(interface, attached.program_id))
    if mode == "tcx" and name not in METERS:
        return  # the program is at the XDP hook, not at tcx
    if name in METERS:
        raise UsageError(
            f"{interface.name}: n3ic has loaded program {attached.program_id} there already: "
            f"n3ic xdp update {interface.name} MODEL swaps its model while packets flow; for other "
            f"policies, rules or sizes, n3ic xdp unload {interface.name} and load again"
        )
    beside = dispatcher.dispatched(interface.index)
    if beside is not None:
        return
    if name == dispatcher.NAME:
        dispatcher.needed()
    raise UsageError(
        f"{interface.name}: program {attached.program_id} ({name}) of another tool is attached; "
        f"detach it with ip link set dev {interface.name} xdp off, or load it by libxdp "
        "(xdp-loader), whose dispatcher runs several"
    )


def _name_of(program_id: int) -> str:
    with program_by_id(program_id) as program:
        return str(program.name)


def _of_daemon(interface: Interface, program_id: int) -> str:
    return (
        f"{interface.name}: program {program_id} there is n3icd's, and has no record: either "
        "n3icd is older, or its records are elsewhere (records = in its configuration; N3IC_RUN "
        "names the folder above); n3icd list, status and unload work there"
    )


def _attach(
    interface: Interface, programs: MeterPrograms, record: ProgramRecord, image: bytes
) -> ProgramRecord | BpfError:
    """Attach a program; return the record of what runs, or why the driver refuses this mode."""
    try:
        if record.priority is None:
            attach(interface.index, programs.program, record.mode)
            return record
        with dispatcher.attached(
            interface.index, image, programs.program, record.mode, record.priority
        ) as program:
            attached = query(interface.index)
            priority = record.priority if attached and attached.dispatched else None
            return replace(record, program_id=program.id, priority=priority)
    except BpfError as error:
        if record.mode != "native" or error.number not in _NOT_NATIVE:
            raise
        return error


def _alone(record: ProgramRecord, priority: int | None) -> str:
    """Why a program that should share its interface runs alone; empty if it does not."""
    if priority is None or record.priority is not None:
        return ""
    return "this kernel cannot run XDP programs from a dispatcher: this one is alone there"


def _note(interface: Interface, mode: AttachMode, refused: Sequence[BpfError]) -> str:
    """Why a program was not attached in the best mode; empty if it was."""
    if not refused:
        return ""
    if mode == "native":
        return f"{interface.name} takes no frames in several pieces ({refused[0]}): short ones only"
    why = f"has no native XDP{' at its MTU' if refused[0].number == errno.ERANGE else ''}"
    return f"{interface.name} {why} ({refused[0]}): generic, and slower"
