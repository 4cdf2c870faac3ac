# SPDX-License-Identifier: Apache-2.0
"""The networks of a run are the same whether this machine or a Dask cluster trained them."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.datasets.ns3_tomography import DATASET
from n3ic.datasets.ns3_tomography.recipes import RECIPES
from n3ic.errors import N3icError
from n3ic.usecases.request import TrainRequest
from n3ic.usecases.training import train_use_case
from n3ic.util import parallel


@pytest.fixture(scope="module")
def work():
    table = DATASET.load(None)
    default = RECIPES["default"]
    return {
        "table": table.rows(np.arange(1500)),
        "recipe": replace(
            default, encoding="quantile", training=replace(default.training, epochs=1, distill=0.0)
        ),
    }


@pytest.fixture(scope="module")
def cluster():
    """The address of a scheduler with a worker in this process, which has imported all."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address=None,
    ) as dask_cluster:
        yield dask_cluster.scheduler_address


@pytest.mark.slow
@pytest.mark.usefixtures("small_baselines")
def test_a_run_may_be_trained_on_a_dask_cluster(work, cluster, tmp_path):
    runs = {
        name: train_use_case(
            TrainRequest(
                "tomography",
                table=work["table"],
                recipe=work["recipe"],
                options={"queue": "0,5", "shapes": "8"},
                overrides={"hidden": (16, 8)},
                out=tmp_path / name,
                **where,
            )
        )
        for name, where in {"far": {"dask": cluster}, "here": {"jobs": 1}}.items()
    }
    assert runs["far"].metrics == runs["here"].metrics
    assert len(runs["far"].models) == 2
    for queue, path in runs["far"].models.items():
        assert path.read_bytes() == runs["here"].models[queue].read_bytes()


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_said(work, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="distributed is not installed")
    monkeypatch.setattr(parallel, "_WAIT_S", 0.1)  # Dask tries again all that time
    with pytest.raises(N3icError, match=r"127\.0\.0\.1:9"):
        train_use_case(
            TrainRequest(
                "tomography",
                table=work["table"],
                dask="tcp://127.0.0.1:9",
                out=tmp_path / "run",
            )
        )
    assert list(tmp_path.iterdir()) == []
