"""A card as a P4 program: networks of one shape share its stages, each has its entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from n3ic.card.lowering import SoftwareCard, SoftwareGraph
from n3ic.errors import CardError
from n3ic.exporters.p4.entries import DefaultEntry, network_entries
from n3ic.exporters.p4.run.packets import SHUNTED
from n3ic.exporters.p4.shared.pipeline import Pipeline, PipelineLayer, pipeline_of
from n3ic.model.network import BinaryModel

Keys = tuple[int, ...]


@dataclass(frozen=True)
class KeyedEntry:
    """An entry of a table: its keys, what it does, and what it does while its graph is removed.

    Attributes:
        table: the table.
        keys: UID of the graph, and a class in a policy.
        action: what it runs.
        data: the action's parameters.
        removed: the action without parameters that stands for it while the graph is removed;
            empty for what may stay.
    """

    table: str
    keys: Keys
    action: str
    data: tuple[int, ...] = ()
    removed: str = ""


@dataclass(frozen=True, eq=False)
class Group:
    """Graphs whose networks have one shape.

    Attributes:
        index: from 0.
        graphs: those that share its stages.
        pipelines: of their networks; layers are numbered through all groups.
    """

    index: int
    graphs: tuple[SoftwareGraph, ...]
    pipelines: tuple[Pipeline, ...]

    @property
    def network(self) -> Pipeline:
        """Its stages; the constants of neurons are those of its first graph."""
        return self.pipelines[0]


def groups_of(card: SoftwareCard) -> tuple[Group, ...]:
    """The groups of a card.

    Raises:
        CardError: a graph that a pipeline does not have; names it.
    """
    together: dict[tuple[object, ...], list[SoftwareGraph]] = {}
    for graph in card.graphs:
        _check(graph)
        together.setdefault(_shape(graph.branches[0].model), []).append(graph)
    groups, first = [], 0
    for index, graphs in enumerate(together.values()):
        models = [g.branches[0].model for g in graphs]
        shunts = any(m.shunt for m in models)
        pipelines = [_numbered(pipeline_of(m, shunts=shunts), index, first) for m in models]
        groups.append(Group(index, tuple(graphs), tuple(pipelines)))
        first += len(pipelines[0].layers)
    return tuple(groups)


def entries_of(group: Group, place: int) -> Iterator[KeyedEntry]:
    """The entries of one of a group's graphs: its weights first, its number last."""
    graph, pipeline = group.graphs[place], group.pipelines[place]
    prefix = f"g{group.index}"
    _, weights, setting = network_entries(pipeline)
    for entry in weights:
        own = f"{prefix}_" if entry.table == "shunting" else ""  # others have their layer's number
        yield KeyedEntry(own + entry.table, (graph.uid,), own + entry.action, _data(entry))
    for verdict in (*range(pipeline.classes), SHUNTED):
        action, data = _policy(graph, verdict)
        if action:
            keys = (graph.uid, verdict)
            yield KeyedEntry(f"{prefix}_policy", keys, f"{prefix}_{action}", data, "NoAction")
    for entry in setting:
        removed = f"{prefix}_no_{entry.table}"
        yield KeyedEntry(
            f"{prefix}_{entry.table}", (graph.uid,), entry.action, _data(entry), removed
        )


def commands_of(groups: Sequence[Group]) -> str:
    """``simple_switch_CLI`` commands that add all entries."""
    lines = []
    for group in groups:
        for place in range(len(group.graphs)):
            lines += [
                _words("table_add", e.table, e.action, *map(str, e.keys), "=>", *_hex(e.data))
                for e in entries_of(group, place)
            ]
    return "\n".join(lines) + "\n"


def change_of(group: Group, place: int, *, remove: bool = False) -> str:
    """Commands that give a graph its network anew while packets flow, or take it away.

    Entries are named by their handles: each table counts the entries that ``commands.txt`` adds.
    What tells the model is cleared first and set last: an answer in between bears none.

    Args:
        group: the group.
        place: of the graph in it.
        remove: take it away.
    """
    entries = list(entries_of(group, place))
    handles = _handles(group, place)
    clear = [
        _words("table_modify", e.table, e.removed, str(handles[e.table, e.keys]))
        for e in entries
        if e.removed and (remove or e.removed != "NoAction")
    ]
    if remove:
        return "\n".join(clear) + "\n"
    back = [
        _words("table_modify", e.table, e.action, str(handles[e.table, e.keys]), *_hex(e.data))
        for e in entries
    ]
    return "\n".join((*clear, *back)) + "\n"


def _handles(group: Group, place: int) -> dict[tuple[str, Keys], int]:
    """Place of each entry in its table, those of the graphs before being added first."""
    counts: dict[str, int] = {}
    handles: dict[tuple[str, Keys], int] = {}
    for each in range(place + 1):
        for entry in entries_of(group, each):
            handles[entry.table, entry.keys] = counts.get(entry.table, 0)
            counts[entry.table] = handles[entry.table, entry.keys] + 1
    return handles


def _check(graph: SoftwareGraph) -> None:
    if len(graph.branches) > 1:
        raise CardError(
            f"{graph.name}: target p4 has no parallel branches: a packet passes the tables once, "
            "and branches would take stages of their own; give each network a graph and a UID"
        )
    if graph.branches[0].features:
        raise CardError(
            f"{graph.name}: target p4 has no input stage: its packets carry the input bits"
        )
    for rule in graph.rules:
        if rule.action in ("mark", "mirror"):
            raise CardError(
                f"{graph.name}: target p4 drops and forwards, it does not {rule.action}"
            )
        if rule.margin or rule.below is not None:
            raise CardError(
                f"{graph.name}: target p4 has rules of classes, not of margins: give the model a "
                "shunting threshold instead"
            )


def _shape(model: BinaryModel) -> tuple[object, ...]:
    return (model.shape, tuple(layer.mask is not None for layer in model.layers))


def _numbered(pipeline: Pipeline, group: int, first: int) -> Pipeline:
    """A pipeline whose layers and input field have names of their own in the program."""
    layers: list[PipelineLayer] = []
    for index, layer in enumerate(pipeline.layers, first):
        source = f"l{index - 1}_y" if layers else f"x{group}"
        layers.append(replace(layer, index=index, source=source))
    return replace(pipeline, layers=tuple(layers))


def _policy(graph: SoftwareGraph, verdict: int) -> tuple[str, tuple[int, ...]]:
    """The action of the first rule about a verdict; empty for none, or to forward as ever."""
    rule = next((r for r in graph.rules if r.is_about(verdict, 0)), None)
    if rule is None or (rule.action == "forward" and not rule.value):
        return "", ()
    return ("drop_packet", ()) if rule.action == "drop" else ("to_port", (rule.value,))


def _data(entry: DefaultEntry) -> tuple[int, ...]:
    return tuple(p.value for p in entry.parameters)


def _hex(data: Sequence[int]) -> list[str]:
    return [f"{value:#x}" for value in data]


def _words(*words: str) -> str:
    return " ".join(words)
