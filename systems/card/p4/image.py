# SPDX-License-Identifier: Apache-2.0
"""A card as a P4 program: networks of one shape share stages and have their own entries.

A packet passes the tables once for each branch of its graph. It is resubmitted, and a table keyed
by UID and pass selects the next network. Branches therefore cost entries and passes, not stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from n3ic.errors import CardError
from n3ic.exporters.p4.shared.pipeline import MatchActionPipeline, PipelineLayer, pipeline_of
from n3ic.exporters.p4.table_entries import DefaultEntry, network_entries
from n3ic.model.network import BinaryModel, binary_network
from n3ic.systems.card.compile import SoftwareCard, SoftwareGraph, SoftwareTenant
from n3ic.targets.packets import SHUNTED

Keys = tuple[int | tuple[int, int], ...]
METER = "tenants"
VOTE, BOTH = 1, 2  # codes of joins in the program; 0 is the most certain
_ALL = (1 << 32) - 1  # the largest margin
_PASSES = 255  # maximum passes of a packet, one per branch


@dataclass(frozen=True)
class KeyedEntry:
    """An entry of a table: its keys, its action, and the action that replaces it during a change.

    Attributes:
        table: name of the table.
        keys: numbers, and pairs of smallest and largest value of a range.
        action: name of the action.
        data: parameters of the action.
        removed: action without parameters that replaces it while its network changes or its graph
            is removed; empty if the entry may stay.
        priority: priority of an entry with ranges, smallest first; None for other entries.
    """

    table: str
    keys: Keys
    action: str
    data: tuple[int, ...] = ()
    removed: str = ""
    priority: int | None = None


@dataclass(frozen=True, eq=False)
class ShapeGroup:
    """Networks of one shape.

    Attributes:
        index: number of the group, from 0.
        tasks: tasks that share its stages; the slot of a task is its position, from 1.
        pipelines: pipelines of their networks; layers are numbered across all groups.
    """

    index: int
    tasks: tuple[str, ...]
    pipelines: tuple[MatchActionPipeline, ...]

    @property
    def network(self) -> MatchActionPipeline:
        """The stages, with the constants of the first network's neurons."""
        return self.pipelines[0]


@dataclass(frozen=True, eq=False)
class P4CardImage:
    """A card for P4.

    Attributes:
        card: the card.
        groups: groups of networks of one shape.
    """

    card: SoftwareCard
    groups: tuple[ShapeGroup, ...]

    @property
    def classes(self) -> int:
        """Largest number of classes of a network."""
        return max(g.network.classes for g in self.groups)

    def place(self, task: str) -> tuple[ShapeGroup, int]:
        """Return group and slot of a network."""
        group = next(g for g in self.groups if task in g.tasks)
        return group, 1 + group.tasks.index(task)


def image_of(card: SoftwareCard) -> P4CardImage:
    """Make the image of a card.

    Raises:
        CardError: The target does not support a graph; the error names it.
    """
    for graph in card.graphs:
        _check(graph, card)
    together: dict[tuple[object, ...], list[str]] = {}
    networks = {task: binary_network(model) for task, model in card.networks.items()}
    for task, model in networks.items():
        together.setdefault(_shape(model), []).append(task)
    groups, first = [], 0
    for index, tasks in enumerate(together.values()):
        models = [networks[task] for task in tasks]
        # A shape has the table of shunting thresholds if any of its networks needs one.
        shunts = any(m.shunt for m in models)
        pipelines = [_numbered(pipeline_of(m, shunts=shunts), index, first) for m in models]
        groups.append(ShapeGroup(index, tuple(tasks), tuple(pipelines)))
        first += len(pipelines[0].layers)
    return P4CardImage(card, tuple(groups))


def network_entries_of(group: ShapeGroup, slot: int) -> Iterator[KeyedEntry]:
    """Yield the entries of a network in a group: weights first, the model's number last."""
    prefix = f"g{group.index}"
    _, weights, setting = network_entries(group.pipelines[slot - 1])
    for entry in weights:
        own = f"{prefix}_" if entry.table == "shunting" else ""  # others have their layer's number
        yield KeyedEntry(own + entry.table, (slot,), own + entry.action, _data(entry))
    for entry in setting:
        removed = f"{prefix}_no_{entry.table}"
        yield KeyedEntry(f"{prefix}_{entry.table}", (slot,), entry.action, _data(entry), removed)


def graph_entries_of(image: P4CardImage, graph: SoftwareGraph) -> Iterator[KeyedEntry]:
    """Yield the entries of a graph: meter, policy, then networks, with the first network last."""
    # A removed graph spends nothing of its tenant's rate.
    yield KeyedEntry("police", (graph.uid,), "police_tenant", (graph.tenant,), "NoAction")
    yield from _policy(graph)
    join = {"vote": VOTE, "both": BOTH}.get(graph.join, 0) if len(graph.branches) > 1 else 0
    # Entries are added in this order: while a graph is incomplete, its first pass finds no network.
    for number, branch in reversed(list(enumerate(graph.branches))):
        group, slot = image.place(branch.task)
        run = (1 + group.index, slot)
        keys = (graph.uid, number)
        if number + 1 < len(graph.branches):
            yield KeyedEntry("turns", keys, "take_turn", run, "no_turn")
        else:
            yield KeyedEntry("turns", keys, "take_last_turn", (*run, join), "no_turn")


def commands_of(image: P4CardImage) -> str:
    """Make the ``simple_switch_CLI`` commands that add all entries and set the meters.

    All tables are cleared first, those of the models' numbers before the others. So the commands
    replace the entries of a switch that holds others, and none is refused: ``simple_switch_CLI``
    goes on after a command that is.
    """
    entries = list(_entries(image))
    model_tables = [e.table for e in entries if _names_model(e)]
    # A card without rules has no entry in the policy, where the card before it may have some.
    tables = dict.fromkeys((*model_tables, *(e.table for e in entries), "policy"))
    lines = [_words("table_clear", table) for table in tables]
    lines += [
        _words("meter_set_rates", METER, str(index), _rate(tenant), _rate(tenant))
        for index, tenant in enumerate(image.card.tenants)
    ]
    for entry in entries:
        keys = (f"{k[0]:#x}->{k[1]:#x}" if isinstance(k, tuple) else str(k) for k in entry.keys)
        last = [] if entry.priority is None else [str(entry.priority)]
        data = (*_hex(entry.data), *last)
        lines.append(_words("table_add", entry.table, entry.action, *keys, "=>", *data))
    return "\n".join(lines) + "\n"


def change_of(image: P4CardImage, graph: SoftwareGraph, *, remove: bool = False) -> str:
    """Make commands that rewrite a graph's networks while packets flow, or remove the graph.

    Entries are addressed by handles, which are indices in the order of ``commands.txt``. The
    model's number is cleared first and set last, so that no answer in between carries it.

    Args:
        image: the card.
        graph: a graph of the card.
        remove: whether to remove it; networks that other graphs use stay.
    """
    handles = _handles(image)
    own = [entry for entry in graph_entries_of(image, graph) if entry.removed]
    if remove:
        # In the reverse order of adding: the first pass finds no network before any later entry
        # changes.
        removals = [_modify(e, handles, e.removed, ()) for e in reversed(own)]
        return "\n".join(removals) + "\n"
    back = [_modify(e, handles, e.action, e.data) for e in own]
    networks = networks_of(image, [branch.task for branch in graph.branches])
    return networks + "".join(f"{line}\n" for line in back)


def networks_of(image: P4CardImage, tasks: Sequence[str]) -> str:
    """Make commands that rewrite networks while packets flow; graphs stay as they are."""
    handles = _handles(image)
    places = dict.fromkeys(image.place(task) for task in tasks)
    weights = [e for place in places for e in network_entries_of(*place)]
    clear = [_modify(e, handles, e.removed, ()) for e in weights if e.removed]
    back = [_modify(e, handles, e.action, e.data) for e in weights]
    return "\n".join((*clear, *back)) + "\n"


def with_network(image: P4CardImage, task: str, model: BinaryModel) -> P4CardImage:
    """Return a card with one network replaced.

    Raises:
        CardError: The stages cannot compute the network; the error says why.
    """
    (group, slot), old = image.place(task), binary_network(image.card.networks[task])
    if _shape(model) != _shape(old):
        raise CardError(
            f"{task}: the program has stages for {old.shape_text}, got {model.shape_text}, or "
            "layers with and without masks: another shape costs stages, export the card again"
        )
    shunts = group.network.shunts
    if model.shunt and not shunts:
        raise CardError(
            f"{task}: the program has no shunting threshold for its shape, the network has one: "
            "export the card again"
        )
    pipelines = list(group.pipelines)
    first = group.network.layers[0].index
    pipelines[slot - 1] = _numbered(pipeline_of(model, shunts=shunts), group.index, first)
    groups = list(image.groups)
    groups[group.index] = replace(group, pipelines=tuple(pipelines))
    return replace(image, groups=tuple(groups))


def _entries(image: P4CardImage) -> Iterator[KeyedEntry]:
    """Yield all entries of a card in the order in which they are added."""
    for group in image.groups:
        for slot in range(1, 1 + len(group.tasks)):
            yield from network_entries_of(group, slot)
    for graph in image.card.graphs:
        yield from graph_entries_of(image, graph)


def _names_model(entry: KeyedEntry) -> bool:
    """Whether an entry sets a model's number."""
    return entry.action.startswith("set_model_")


def _handles(image: P4CardImage) -> dict[tuple[str, Keys], int]:
    """Return the handle of each entry: its position in its table."""
    counts: dict[str, int] = {}
    handles: dict[tuple[str, Keys], int] = {}
    for entry in _entries(image):
        # bmv2 numbers the entries of each table from 0 in the order in which they are added.
        handles[entry.table, entry.keys] = counts.get(entry.table, 0)
        counts[entry.table] = handles[entry.table, entry.keys] + 1
    return handles


def _modify(
    entry: KeyedEntry, handles: dict[tuple[str, Keys], int], action: str, data: tuple[int, ...]
) -> str:
    handle = handles[entry.table, entry.keys]
    # simple_switch_CLI fails if nothing follows the handle.
    arguments = _hex(data) or ["=>"]
    return _words("table_modify", entry.table, action, str(handle), *arguments)


def _check(graph: SoftwareGraph, card: SoftwareCard) -> None:
    if len(graph.branches) > _PASSES:
        raise CardError(
            f"{graph.name}: {len(graph.branches)} branches, target p4 counts {_PASSES} passes"
        )
    if graph.branches[0].features:
        raise CardError(
            f"{graph.name}: target p4 has no input stage: its packets carry the input bits"
        )
    for rule in graph.rules:
        if rule.action == "mirror":
            raise CardError(
                f"{graph.name}: target p4 drops, forwards and marks packets, but does not mirror"
            )
        if rule.action == "mark" and card.carrier != "udp-port":
            raise CardError(
                f'{graph.name}: a rule marks packets, expected uid = "udp-port" in [device]: '
                f"frames of {card.carrier!r} have no DSCP"
            )


def _shape(model: BinaryModel) -> tuple[object, ...]:
    return (model.shape, tuple(layer.mask is not None for layer in model.layers))


def _numbered(pipeline: MatchActionPipeline, group: int, first: int) -> MatchActionPipeline:
    """Return a pipeline whose layers and input field have unique names in the program."""
    layers: list[PipelineLayer] = []
    for index, layer in enumerate(pipeline.layers, first):
        source = f"l{index - 1}_y" if layers else f"x{group}"
        layers.append(replace(layer, index=index, source=source))
    return replace(pipeline, layers=tuple(layers))


def _policy(graph: SoftwareGraph) -> Iterator[KeyedEntry]:
    """Yield one entry per rule and class in the rules' order, plain forwarding included."""
    classes = max(len(branch.model.classes) for branch in graph.branches)
    earlier: set[Keys] = set()
    for priority, rule in enumerate(graph.rules, 1):
        margins = (rule.margin, _ALL if rule.below is None else rule.below - 1)
        action, data = "drop_packet", tuple[int, ...]()
        if rule.action == "forward":
            action, data = ("to_port", (rule.value,)) if rule.value else ("NoAction", ())
        elif rule.action == "mark":
            action, data = "mark_dscp", (rule.value,)
        # An exact key has no wildcard, so a rule for all classes becomes an entry for each.
        for verdict in rule.classes or (*range(classes), SHUNTED):
            keys: Keys = (graph.uid, verdict, margins)
            if keys not in earlier:  # otherwise an earlier rule matches first
                yield KeyedEntry("policy", keys, action, data, "NoAction", priority)
            earlier.add(keys)


def _rate(tenant: SoftwareTenant) -> str:
    """Format bytes per microsecond, and the bytes of a burst."""
    # Integers, because a float would round large rates.
    whole, part = divmod(tenant.rate, 10**6)
    return f"{whole}.{part:06d}:{tenant.burst}"


def _data(entry: DefaultEntry) -> tuple[int, ...]:
    return tuple(p.value for p in entry.parameters)


def _hex(data: tuple[int, ...]) -> list[str]:
    return [f"{value:#x}" for value in data]


def _words(*words: str) -> str:
    return " ".join(words)
