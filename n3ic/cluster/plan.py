"""The plan of a cluster: where layers lie, and what is expected of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from n3ic.cluster.costs import Expected
from n3ic.cluster.nodes import Cluster, ClusterNode
from n3ic.cluster.placement import Placement
from n3ic.errors import ClusterError

PLAN_VERSION = 1
_MAX_BYTES = 1 << 22


@dataclass(frozen=True)
class Alternative:
    """Another placement.

    Attributes:
        name: how all layers are placed.
        expected: what it would give; None where it does not fit.
    """

    name: str
    expected: Expected | None


@dataclass(frozen=True)
class Plan:
    """Where a model lies, and why.

    Attributes:
        cluster: the nodes and their home.
        placement: the shares of each layer.
        expected: time and traffic, estimated.
        used: bytes of weights by node number.
        goal: what was chosen by: ``throughput`` or ``latency``.
        alternatives: plain placements, to compare with.
    """

    cluster: Cluster
    placement: Placement
    expected: Expected
    used: Mapping[int, int]
    goal: str
    alternatives: tuple[Alternative, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "version": PLAN_VERSION,
            "placement": self.placement.to_dict(),
            "nodes": [
                _node(n) | {"number": i, "used_bytes": self.used.get(i, 0)}
                for i, n in enumerate(self.cluster.nodes, 1)
            ],
            "home": _node(self.cluster.home),
            "goal": self.goal,
            "expected": {"kind": "estimated"} | asdict(self.expected),
            "alternatives": [
                {
                    "name": a.name,
                    "expected": None if a.expected is None else asdict(a.expected),
                }
                for a in self.alternatives
            ],
        }


def _node(node: ClusterNode) -> dict[str, Any]:
    return asdict(node) | {"kind": node.figures.kind}


def read_placement(path: str | Path) -> Placement:
    """The placement of a plan that ``n3ic cluster plan --out`` wrote.

    Raises:
        ClusterError: it cannot be read, or is none.
    """
    try:
        with Path(path).open("rb") as stream:
            text = stream.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise ClusterError(f"{path}: larger than {_MAX_BYTES >> 20} MiB, no plan")
        data = json.loads(text)
    except OSError as error:
        raise ClusterError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ClusterError(f"{path}: this is no JSON: {str(error)[:200]}") from error
    if not isinstance(data, dict) or data.get("version") != PLAN_VERSION:
        raise ClusterError(
            f"{path}: expected a plan of version {PLAN_VERSION}; n3ic cluster plan --out writes one"
        )
    try:
        return Placement.from_dict(data.get("placement"))
    except ClusterError as error:
        raise ClusterError(f"{path}: {error}") from error
