# SPDX-License-Identifier: Apache-2.0
"""``n3ic bench meter``: compares our meters with argus and NFStream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.evaluation.study import Study

if TYPE_CHECKING:
    from n3ic.targets.figures import Bench


def _bench(capture: str | Path | None) -> Bench:
    from n3ic.studies.meter_bench.bench import bench  # the help needs no numpy

    return bench(capture)


STUDY = Study(bench=_bench)
