# SPDX-License-Identifier: Apache-2.0
"""Read and check ``card.toml``; errors name file, line, what was expected and what came."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from n3ic.errors import CardError
from n3ic.systems.card.description import (
    ACTIONS,
    JOINS,
    UID_BITS,
    Card,
    CardDevice,
    InputStage,
    Join,
    Meter,
    NetworkTask,
    PacketTask,
    Parallel,
    Policy,
    Rule,
    Series,
    Task,
    TaskGraph,
    Tenant,
    UserVerilog,
)
from n3ic.systems.card.tasks.kind import Entries, kind_of, kinds
from n3ic.systems.card.toml_lines import LimitError, parse
from n3ic.systems.card.toml_values import TomlTable, is_int, shown
from n3ic.util.structured import read_bounded

CARD_FILE = "card.toml"
_MAX_BYTES = 1 << 18
_VERILOG_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,126}")
_DEEPEST = 16  # branches within branches


def read_card(path: str | Path) -> Card:
    """Read a ``card.toml``; paths in it are relative to its folder.

    Raises:
        CardError: The file cannot be read or is invalid; the error names the line.
    """
    return parse_card(_text_of(path, "a description of a card"), str(path), Path(path).parent)


def read_table(path: Path, task: PacketTask) -> Entries:
    """Read a new table of a packet task: a TOML file with the task's keys.

    Raises:
        CardError: The task has no table, or the file cannot be read or is invalid; the error names
            the line.
    """
    if not kind_of(task.task).keys or kind_of(task.task).memory:
        raise CardError(f"{task.name}: a packet task {task.task!r} has no table to replace")
    root = _root(_text_of(path, f"the keys of a {task.task}"), str(path), path.parent)
    root.only(*kind_of(task.task).keys)
    return kind_of(task.task).table(root)


def _text_of(path: str | Path, what: str) -> str:
    data = read_bounded(path, _MAX_BYTES, CardError, what)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CardError(
            f"{path}:{line}: expected UTF-8, got byte {data[error.start]:#x}"
        ) from error


def parse_card(text: str, source: str = CARD_FILE, folder: Path = Path()) -> Card:
    """Parse the text of a ``card.toml``; see :func:`read_card`.

    Args:
        text: the document.
        source: name of its file, for errors.
        folder: folder to which paths in it are relative.
    """
    return _card(_root(text, source, folder))


def _root(text: str, source: str, folder: Path) -> TomlTable:
    try:
        data, lines = parse(text)
    except LimitError as error:
        raise CardError(f"{source}:{error.line}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        position = re.search(r"at line (\d+)", str(error))
        line = int(position[1]) if position else text.count("\n") + 1
        raise CardError(f"{source}:{line}: not valid TOML: {error}") from error
    return TomlTable(data, (), source, lines, folder)


def _card(root: TomlTable) -> Card:
    root.only("name", "device", "tasks", "tenants")
    device = _device(root.table("device"))
    tasks: dict[str, Task] = {}
    for entry in root.tables("tasks"):
        _add(tasks, _task(entry, ""), entry)
    tenants: dict[str, Tenant] = {}
    for entry in root.tables("tenants"):
        entry.only("name", "weight", "ports", "bucket_ms", "tasks", "graphs")
        name = entry.name()
        if name in tenants:
            raise entry.error(f"a second tenant named {name!r}, expected a name of its own", "name")
        for below in entry.tables("tasks"):
            _add(tasks, _task(below, f"{name}/"), below)
        graphs = [_graph(below, name, tasks, device) for below in entry.tables("graphs")]
        if not graphs:
            raise entry.error(
                f"tenant {name!r}: expected [[tenants.graphs]], one or more; got none"
            )
        weight = entry.number("weight", 1.0, 1e6)
        bucket = entry.number("bucket_ms", 1.0, 1000.0)
        tenants[name] = Tenant(name, weight, tuple(graphs), entry.line, _ports(entry), bucket)
    if not tenants:
        raise root.error("expected [[tenants]], one or more; got none")
    _unique_graphs(root, tenants.values())
    card = Card(root.text("name", "card"), device, tasks, tuple(tenants.values()), root.source)
    _all_used(root, card)
    return card


def _ports(entry: TomlTable) -> tuple[int, ...]:
    ports = entry.values.get("ports", [])
    if not isinstance(ports, list) or not all(is_int(p) and 0 < p < 256 for p in ports):
        raise entry.error(
            f"'ports': expected a list of ports, 1 to 255, got {shown(ports)}", "ports"
        )
    return tuple(ports)


def _device(entry: TomlTable) -> CardDevice:
    entry.only(
        *("target", "regions", "spare", "resources", "ingress", "uid", "scheduling_ns", "queue"),
        *("memory_pages", "page_bytes"),
    )
    if "target" not in entry.values and not entry.amounts("resources"):
        raise entry.error("expected 'target' in [device], or [device.resources]; got neither")
    ingress = entry.rate("ingress")
    if ingress is not None and ingress.unit != "Gb/s":
        raise entry.error(f"'ingress': expected Gb/s, got {ingress.unit}", "ingress")
    queue = entry.optional_integer("queue", 16, 4096)
    if queue is not None and queue & queue - 1:
        raise entry.error(f"'queue': expected a power of two, got {queue}", "queue")
    page = entry.integer("page_bytes", 64, 1 << 30, 1 << 21)
    if page & page - 1:
        raise entry.error(f"'page_bytes': expected a power of two, got {page}", "page_bytes")
    return CardDevice(
        target=entry.text("target", ""),
        regions=entry.optional_integer("regions", 1, 64),
        spare=entry.integer("spare", 0, 63, 0),
        resources=entry.amounts("resources"),
        ingress=ingress,
        uid=entry.choice("uid", tuple(UID_BITS), "header"),
        scheduling_ns=entry.optional_number("scheduling_ns"),
        queue=queue,
        memory_pages=entry.optional_integer("memory_pages", 1, 1 << 15),
        page_bytes=page,
    )


_COMMON = ("name", "kind", "needs", "rate", "latency_ns")


def _task(entry: TomlTable, prefix: str) -> Task:
    kind = entry.choice("kind", (*_KINDS, *kinds()))
    keys, build = _KINDS[kind] if kind in _KINDS else (kind_of(kind).keys, _packet)
    entry.only(*_COMMON, *keys)
    common = {
        "name": prefix + entry.name(),
        "needs": entry.amounts("needs") if "needs" in entry.values else None,
        "rate": entry.rate("rate"),
        "latency_ns": entry.optional_number("latency_ns"),
        "line": entry.line,
    }
    return build(entry, common)


def _meter(entry: TomlTable, common: Mapping[str, Any]) -> Task:
    model, spec = entry.path("model"), entry.path("spec")
    if model is not None and spec is not None:
        raise entry.error("expected 'model' or 'spec', got both", "spec")
    if model is None and spec is None and common["needs"] is None:
        raise entry.error("expected 'model', 'spec' or 'needs' of the meter, got none")
    return Meter(model=model, spec=spec, network=entry.text("network", ""), **common)


def _input(entry: TomlTable, common: Mapping[str, Any]) -> Task:
    model = entry.needed_path("model", "the model file or run whose input stage it is")
    return InputStage(model=model, network=entry.text("network", ""), **common)


def _network(entry: TomlTable, common: Mapping[str, Any]) -> Task:
    options = entry.table("options").values
    for key, value in options.items():
        if not isinstance(value, str | int | float | bool):
            raise entry.error(
                f"options.{key}: expected a value of the exporter's option, got {shown(value)}",
                "options",
                key,
            )
    model = entry.needed_path("model", "a model file or a run")
    return NetworkTask(
        model=model, network=entry.text("network", ""), options=dict(options), **common
    )


def _policy(entry: TomlTable, common: Mapping[str, Any]) -> Task:
    rules = tuple(_rule(below) for below in entry.tables("rules"))
    if not rules:
        raise entry.error("expected 'rules' of the policy, one or more; got none")
    return Policy(rules=rules, **common)


def _rule(entry: TomlTable) -> Rule:
    entry.only("action", "classes", "margin", "below", "port", "mark")
    action = entry.choice("action", ACTIONS)
    classes = entry.values.get("classes", [])
    if not isinstance(classes, list) or not all(isinstance(c, str) and c for c in classes):
        raise entry.error(f"'classes': expected names of classes, got {shown(classes)}", "classes")
    margin = entry.integer("margin", 0, 1 << 31, 0)
    below = entry.optional_integer("below", 1, 1 << 31)
    if below is not None and below <= margin:
        raise entry.error(f"'below': expected more than 'margin' ({margin}), got {below}", "below")
    port = entry.optional_integer("port", 0, 255)
    mark = entry.optional_integer("mark", 0, 63)
    if action == "mirror" and port is None:
        raise entry.error("expected 'port', the destination of the mirror; it is missing")
    if action == "mark" and mark is None:
        raise entry.error("expected 'mark', the DSCP to write; it is missing")
    if action in ("drop", "mark") and port is not None:
        raise entry.error(f"action {action!r} takes no 'port'", "port")
    if action != "mark" and mark is not None:
        raise entry.error(f"action {action!r} takes no 'mark'", "mark")
    return Rule(action, tuple(classes), margin, below, port, mark)


def _verilog(entry: TomlTable, common: Mapping[str, Any]) -> Task:
    sources = entry.values.get("sources")
    if not isinstance(sources, list) or not sources or not all(isinstance(s, str) for s in sources):
        raise entry.error(
            f"'sources': expected Verilog files, one or more, got {shown(sources)}", "sources"
        )
    for key in ("needs", "rate"):
        if common[key] is None:
            raise entry.error(
                f"expected {key!r}: no report states it for a user's own task; it is missing"
            )
    top = entry.text("top")
    if not _VERILOG_NAME.fullmatch(top):
        raise entry.error(f"'top': expected the name of a Verilog module, got {shown(top)}", "top")
    bits = entry.integer("data_bits", 8, 4096, 256)
    if bits % 8:
        raise entry.error(f"'data_bits': expected a multiple of 8, got {bits}", "data_bits")
    return UserVerilog(
        sources=tuple(entry.folder / s for s in sources), top=top, data_bits=bits, **common
    )


def _packet(entry: TomlTable, common: Mapping[str, Any]) -> Task:
    name = entry.text("kind")
    kind = kind_of(name)
    return PacketTask(task=name, entries=kind.table(entry), pages=kind.pages(entry), **common)


_KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[TomlTable, Mapping[str, Any]], Task]]] = {
    "meter": (("model", "spec", "network"), _meter),
    "input": (("model", "network"), _input),
    "network": (("model", "network", "options"), _network),
    "policy": (("rules",), _policy),
    "verilog": (("sources", "top", "data_bits"), _verilog),
}


def _graph(
    entry: TomlTable, tenant: str, tasks: Mapping[str, Task], device: CardDevice
) -> TaskGraph:
    entry.only("name", "uid", "wants", "flow", "packet_bytes", "inferences_per_packet", "needs")
    # A VLAN tag reserves 0 and 4095 (IEEE 802.1Q).
    most = (1 << UID_BITS[device.uid]) - (2 if device.uid == "vlan" else 1)
    uid = entry.optional_integer("uid", 1, most)
    if uid is None:
        raise entry.error(f"expected 'uid', from 1 to {most}; it is missing")
    wants = entry.rate("wants")
    if wants is None:
        raise entry.error("expected 'wants', the rate that the tenant wants; it is missing")
    if "flow" not in entry.values:
        raise entry.error("expected 'flow', a list of tasks; it is missing")
    flow = _series(entry, entry.values["flow"], tenant, tasks, 0)
    twice = [name for name, count in Counter(flow.tasks()).items() if count > 1]
    if twice:
        raise entry.error(f"'flow' has {twice[0]!r} twice, expected each task once", "flow")
    _in_order(entry, flow, tasks, {})
    return TaskGraph(
        name=entry.name(),
        uid=uid,
        wants=wants,
        flow=flow,
        packet_bytes=entry.number("packet_bytes", 64.0, 65535.0),
        inferences_per_packet=entry.number("inferences_per_packet", 1.0, 1.0),
        needs=entry.amounts("needs"),
        line=entry.line,
    )


def _series(
    entry: TomlTable, steps: Any, tenant: str, tasks: Mapping[str, Task], depth: int
) -> Series:
    if not isinstance(steps, list) or not steps:
        raise entry.error(f"'flow': expected a list of tasks, got {shown(steps)}", "flow")
    if depth > _DEEPEST:
        raise entry.error(f"'flow': branches within branches, more than {_DEEPEST} deep", "flow")
    out: list[str | Parallel] = []
    for step in steps:
        if isinstance(step, str):
            out.append(_known(entry, step, tenant, tasks))
        elif isinstance(step, dict):
            out.append(_parallel(entry, step, tenant, tasks, depth))
        else:
            raise entry.error(
                f"'flow': expected a task's name or {{ branches = [...], join = ... }}, "
                f"got {shown(step)}",
                "flow",
            )
    return Series(tuple(out))


def _parallel(
    entry: TomlTable, step: Mapping[str, Any], tenant: str, tasks: Mapping[str, Task], depth: int
) -> Parallel:
    unknown = step.keys() - {"branches", "join"}
    if unknown:
        raise entry.error(f"'flow': unknown key {min(unknown)!r}, expected branches, join", "flow")
    branches, join = step.get("branches"), step.get("join")
    if not isinstance(branches, list) or len(branches) < 2:
        raise entry.error(
            f"'flow': expected two branches or more, each a list, got {shown(branches)}", "flow"
        )
    if join not in JOINS:
        listed = ", ".join(JOINS)
        raise entry.error(f"'flow': join: expected one of {listed}, got {shown(join)}", "flow")
    parts = tuple(_series(entry, b, tenant, tasks, depth + 1) for b in branches)
    for part in parts:
        if join != "both" and not any(isinstance(tasks[t], NetworkTask) for t in part.tasks()):
            first = next(part.tasks())
            raise entry.error(
                f"'flow': join {join!r} compares verdicts: expected a network in every branch, "
                f"the one that begins with {first!r} has none",
                "flow",
            )
    return Parallel(parts, cast(Join, join))


_ORDER = ("meter", "input", "network", "policy")


def _in_order(
    entry: TomlTable, flow: Series, tasks: Mapping[str, Task], before: Mapping[str, str]
) -> Mapping[str, str]:
    """Check that every task can read the results of the tasks before it.

    Args:
        entry: entry of the graph, for errors.
        flow: tasks of the graph.
        tasks: all tasks.
        before: the last task of each kind before the flow, unless a user's own task has consumed
            its result.

    Returns:
        The last task of each kind after the flow.
    """
    last = dict(before)
    for step in flow.steps:
        if isinstance(step, Parallel):
            ends = [_in_order(entry, branch, tasks, last) for branch in step.branches]
            # What any branch has produced counts as produced after the join.
            last = {kind: name for end in ends for kind, name in end.items()}
            continue
        kind = tasks[step].kind
        if (
            kind == "verilog"
        ):  # its output may be anything, but the packet has passed its meter and policy
            last = {k: n for k, n in last.items() if k in ("meter", "policy")}
            continue
        if kind == "packet":  # it reads and writes headers alone
            if wrong := [k for k in _ORDER[1:] if k in last]:
                raise entry.error(
                    f"'flow': {step!r} after {wrong[-1]} {last[wrong[-1]]!r}, expected "
                    "packet tasks before them",
                    "flow",
                )
            continue
        later = _ORDER[_ORDER.index(kind) :] if kind != "policy" else ()
        wrong = [k for k in later if k in last]
        if wrong:
            raise entry.error(
                f"'flow': {kind} {step!r} after {wrong[-1]} {last[wrong[-1]]!r}, expected "
                f"{', '.join(_ORDER)} in this order, each at most once except policies",
                "flow",
            )
        last[kind] = step
    return last


def _known(entry: TomlTable, name: str, tenant: str, tasks: Mapping[str, Task]) -> str:
    """Return the full name of a task: the tenant's own task first, then one for all."""
    for full in (f"{tenant}/{name}", name):
        # A name with a slash would reach another tenant's task, so the count of slashes is checked.
        if full in tasks and full.count("/") == (full != name):
            return full
    usable = [t.removeprefix(f"{tenant}/") for t in tasks]
    usable = [t for t in usable if "/" not in t]
    raise entry.error(
        f"'flow': unknown task {name!r}, expected one of {', '.join(usable) or '(none)'}",
        "flow",
    )


def _add(tasks: dict[str, Task], task: Task, entry: TomlTable) -> None:
    if task.name in tasks:
        raise entry.error(
            f"a second task named {task.name!r}, the first is in line {tasks[task.name].line}",
            "name",
        )
    tasks[task.name] = task


def _unique_graphs(root: TomlTable, tenants: Iterable[Tenant]) -> None:
    owners: dict[int, tuple[str, int]] = {}
    for tenant in tenants:
        names: set[str] = set()
        for graph in tenant.graphs:
            place = f"{root.source}:{graph.line}"
            full = f"{tenant.name}/{graph.name}"
            if graph.uid in owners:
                other, line = owners[graph.uid]
                raise CardError(
                    f"{place}: graph {full} has uid {graph.uid}, expected one of its own: "
                    f"{other} has it in line {line}"
                )
            if graph.name in names:
                raise CardError(f"{place}: a second graph named {full}, expected another name")
            owners[graph.uid] = full, graph.line
            names.add(graph.name)


def _all_used(root: TomlTable, card: Card) -> None:
    used = {t for tenant in card.tenants for g in tenant.graphs for t in g.flow.tasks()}
    for name, task in card.tasks.items():
        if name not in used:
            raise CardError(
                f"{root.source}:{task.line}: no graph's flow names task {name!r}; remove it or "
                "add it to a flow"
            )
