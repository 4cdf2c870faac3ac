"""What tasks take of a card, from exporters' reports, and how much there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from n3ic.card.description import Rate
from n3ic.targets.figures import FigureKind

INGRESS = "ingress"  # the resource of which every packet takes its bytes
Per = Literal["instance", "packet"]
Where = Literal["region", "card"]


@dataclass(frozen=True)
class Resource:
    """Something of a card that its tenants share.

    Attributes:
        name: such as ``lut_sites``, ``cls``, ``cycles``.
        unit: of amounts; of a resource that packets take, an amount a second.
        per: whether an instance of a task takes it, however much it works (``instance``: area,
            memory, table entries), or every packet that it works on (``packet``: cycles,
            thread-seconds, bytes of a port).
        within: whether each region has its own, or the card has one for all.
        capacity: of one region, or of the card; None where it is counted but has no bound.
    """

    name: str
    unit: str
    per: Per
    within: Where
    capacity: float | None


@dataclass(frozen=True)
class Amount:
    """An amount, how it is known and from what."""

    value: float
    kind: FigureKind
    source: str


@dataclass(frozen=True)
class TaskCost:
    """What one instance of a task takes and sustains.

    Attributes:
        needs: by resource: of an instance, or of one packet or inference, as the resource says.
        rate: what one instance sustains; None for as much as arrives.
        rate_kind: how the rate is known.
        rate_source: from what.
        latency_ns: from a packet's arrival to its departure; None where not known.
    """

    needs: Mapping[str, Amount]
    rate: Rate | None
    rate_kind: FigureKind
    rate_source: str
    latency_ns: Amount | None
