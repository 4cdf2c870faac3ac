# SPDX-License-Identifier: Apache-2.0
"""What a model knows of its training rows, for the domain report of ``flow-exec``."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

from n3ic.evaluation.training_distribution import OUTSIDE, alarm_of, axes, spans
from n3ic.model.inputs import RATE_UNIT, InputSpec


def domain_values(spec: InputSpec) -> dict[str, Any]:
    """Template values for ``domain_rows.h``, the program's table of the training rows."""
    known = list(axes(spec))
    ranges = [(i, *span) for i, span in enumerate(spans(spec)) if span is not None]
    alarm = alarm_of(known)
    return {
        "axes": known,
        "classes": len(known[0].rates) if known else 1,
        "features": len({axis.feature for axis in known}),
        "spans": ranges if known else [],
        "rate_unit": RATE_UNIT,
        "outside": repr(len(ranges) * OUTSIDE),
        "alarm": repr(alarm),
        "z": repr(NormalDist().inv_cdf(1 - alarm)),
    }
