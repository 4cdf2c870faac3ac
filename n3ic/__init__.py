"""n3ic trains binary neural networks on network traffic and deploys them in network cards.

Every target computes exactly the scores of the trained network, and
:func:`n3ic.targets.verification.verify_directory` shows it. See the tutorial in ``docs/`` for
the way from labelled flows to a NIC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from n3ic.data.table import Feature, FlowTable
    from n3ic.model.inputs import Field, InputSpec
    from n3ic.model.layers import HiddenLayer, OutputLayer
    from n3ic.model.network import BinaryModel

__version__ = "0.1.0"

# Names are imported when first used: `n3ic --help` must not wait for numpy or PyTorch.
_LAZY = {
    "BinaryModel": "n3ic.model.network",
    "Feature": "n3ic.data.table",
    "Field": "n3ic.model.inputs",
    "FlowTable": "n3ic.data.table",
    "HiddenLayer": "n3ic.model.layers",
    "InputSpec": "n3ic.model.inputs",
    "OutputLayer": "n3ic.model.layers",
}

__all__ = [
    "BinaryModel",
    "Feature",
    "Field",
    "FlowTable",
    "HiddenLayer",
    "InputSpec",
    "OutputLayer",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'n3ic' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
