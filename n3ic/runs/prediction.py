# SPDX-License-Identifier: Apache-2.0
"""Classes of flows, wherever they are: in a file, in a capture, or in a table in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.data.delimited import Units
from n3ic.data.flows import read_features
from n3ic.data.memory import is_table, like, table_content
from n3ic.data.table import FlowTable
from n3ic.kernel.prediction import predict
from n3ic.meter.capture import is_capture
from n3ic.meter.verdicts import capture_features
from n3ic.model.classifier import Classifier, Inference


def predict_flows(
    model: Classifier,
    flows: Any,
    *,
    dataset: str | None = None,
    units: Units | None = None,
    feature_names: Sequence[str] | None = None,
) -> Any:
    """Classify flows; see :func:`n3ic.predict`."""
    features: Mapping[str, ArrayLike]
    if is_table(flows):
        own = model.table is not None and dataset is None and units != "nic"
        read = model.table.columns if model.table is not None and own else None
        content = table_content(flows, feature_names=feature_names, only=read)
        features = read_features(content, model, dataset, units)
        return like(flows, verdict_columns(model, predict(model, model.encode(features))))
    if isinstance(flows, FlowTable):
        features = flows.features
    elif isinstance(flows, Mapping):
        features = flows
    elif is_capture(flows):
        features = capture_features(model, flows)
    else:
        features = read_features(flows, model, dataset, units)
    return predict(model, model.encode(features))


def verdict_columns(model: Classifier, found: Inference) -> dict[str, NDArray[Any]]:
    """What a model computed as columns: ``class`` (or ``shunt``), ``margin``, ``score_CLASS``."""
    verdicts = model.verdicts(found.scores)
    return {
        "class": np.array(model.verdict_names)[verdicts],
        "margin": found.margins,
        **{f"score_{name}": found.scores[:, i] for i, name in enumerate(model.classes)},
    }
