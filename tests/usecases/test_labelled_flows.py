# SPDX-License-Identifier: Apache-2.0
"""Flows that a run is shown again have the classes of its training."""

import numpy as np
import pytest

import n3ic
from n3ic.usecases.evaluation import labelled_flows


@pytest.mark.usefixtures("small_baselines")
def test_the_class_that_was_asked_for_is_the_one_that_is_counted(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{i},{rng.integers(90)},{('bulk', 'web', 'call')[i % 3]}" for i in range(90)]
    table = tmp_path / "flows.csv"
    table.write_text("\n".join(["packets,bytes,kind", *lines]) + "\n")
    run = n3ic.train(
        "flows", data=table, label="kind", positive="web", seed=1, out=tmp_path / "run",
        epochs=1, hidden=(4,),
    )  # fmt: skip
    (flows,) = labelled_flows(run.path, table).values()
    assert flows.positive == 1
    assert np.bincount(flows.label).tolist() == [60, 30]
