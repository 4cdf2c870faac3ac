# SPDX-License-Identifier: Apache-2.0
"""n3ic trains binary neural networks on network traffic and deploys them in network cards.

Every target computes exactly the scores of the trained network, and :func:`verify` checks it. The
tutorial in ``docs/`` leads from labelled flows to a NIC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from n3ic.api import (
        bench,
        evaluate,
        export,
        extract,
        load,
        predict,
        train,
        verify,
    )
    from n3ic.data.dataset import DataSet
    from n3ic.data.table import Feature, FlowTable
    from n3ic.families.binary.estimator import BinaryMLPClassifier
    from n3ic.families.binary.torch_import import from_torch
    from n3ic.families.trees.readers.estimators import from_sklearn
    from n3ic.model.inputs import Field, InputSpec
    from n3ic.model.layers import HiddenLayer, OutputLayer
    from n3ic.model.network import BinaryModel, Inference
    from n3ic.runs.folder import Run
    from n3ic.studies.audit.api import audit
    from n3ic.studies.decide.api import decide
    from n3ic.studies.robustness.api import domains, shifts
    from n3ic.studies.shunt.api import shunt
    from n3ic.studies.sweep.api import sweep
    from n3ic.systems.card.api import export_card, plan_card, run_card, simulate_card, verify_card
    from n3ic.systems.cluster.api import compile_cluster, plan_cluster, run_cluster
    from n3ic.systems.stream.api import stream
    from n3ic.systems.stream.learning.api import learn
    from n3ic.targets.base import Exporter
    from n3ic.training.recipe import Recipe, Training
    from n3ic.usecases.base import UseCase

__version__ = "0.2.0"

__all__ = [
    "BinaryMLPClassifier",
    "BinaryModel",
    "DataSet",
    "Exporter",
    "Feature",
    "Field",
    "FlowTable",
    "HiddenLayer",
    "Inference",
    "InputSpec",
    "OutputLayer",
    "Recipe",
    "Run",
    "Training",
    "UseCase",
    "audit",
    "bench",
    "compile_cluster",
    "decide",
    "domains",
    "evaluate",
    "export",
    "export_card",
    "extract",
    "from_sklearn",
    "from_torch",
    "learn",
    "load",
    "plan_card",
    "plan_cluster",
    "predict",
    "run_card",
    "run_cluster",
    "shifts",
    "shunt",
    "simulate_card",
    "stream",
    "sweep",
    "train",
    "verify",
    "verify_card",
]

# Names are imported when first used: `n3ic --help` must not wait for numpy or PyTorch.
_MODULES = {
    "n3ic.api": (
        "bench",
        "evaluate",
        "export",
        "extract",
        "load",
        "predict",
        "train",
        "verify",
    ),
    "n3ic.data.dataset": ("DataSet",),
    "n3ic.data.table": ("Feature", "FlowTable"),
    "n3ic.model.inputs": ("Field", "InputSpec"),
    "n3ic.model.layers": ("HiddenLayer", "OutputLayer"),
    "n3ic.model.network": ("BinaryModel", "Inference"),
    "n3ic.runs.folder": ("Run",),
    "n3ic.targets.base": ("Exporter",),
    "n3ic.families.binary.estimator": ("BinaryMLPClassifier",),
    "n3ic.families.binary.torch_import": ("from_torch",),
    "n3ic.families.trees.readers.estimators": ("from_sklearn",),
    "n3ic.studies.audit.api": ("audit",),
    "n3ic.systems.card.api": (
        "export_card",
        "plan_card",
        "run_card",
        "simulate_card",
        "verify_card",
    ),
    "n3ic.systems.cluster.api": ("compile_cluster", "plan_cluster", "run_cluster"),
    "n3ic.studies.decide.api": ("decide",),
    "n3ic.studies.robustness.api": ("domains", "shifts"),
    "n3ic.studies.shunt.api": ("shunt",),
    "n3ic.systems.stream.api": ("stream",),
    "n3ic.systems.stream.learning.api": ("learn",),
    "n3ic.studies.sweep.api": ("sweep",),
    "n3ic.training.recipe": ("Recipe", "Training"),
    "n3ic.usecases.base": ("UseCase",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'n3ic' has no attribute {name!r}")
    from n3ic.errors import needed

    with needed(f"n3ic.{name}"):
        value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
