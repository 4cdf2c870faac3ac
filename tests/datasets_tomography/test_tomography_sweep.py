"""A sweep gives the same figures on this machine's cores and on a Dask cluster."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.datasets.ns3_tomography import DATASET
from n3ic.datasets.ns3_tomography.recipes import RECIPES
from n3ic.datasets.ns3_tomography.sweep import sweep
from n3ic.errors import N3icError


@pytest.fixture(scope="module")
def work():
    table = DATASET.load(None)
    default = RECIPES["default"]
    return {
        "table": table.rows(np.arange(1500)),
        "recipe": replace(
            default, encoding="quantile", training=replace(default.training, epochs=1, distill=0.0)
        ),
        "queue": "0,5",
        "shapes": ((8,), (16, 8)),
    }


def test_a_dask_cluster_gives_the_same_figures(work):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    seen = []
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        far = sweep(
            dask=cluster.scheduler_address, done=lambda n, total: seen.append((n, total)), **work
        )
    assert far == sweep(jobs=1, **work)
    assert [e.figures.shape for e in far] == [(8,), (16, 8)] * 2
    assert seen == [(2, 4), (4, 4)]


def test_a_scheduler_that_is_not_there_is_said(work):
    pytest.importorskip("distributed", reason="distributed is not installed")
    with pytest.raises(N3icError, match=r"127\.0\.0\.1:9"):
        sweep(dask="tcp://127.0.0.1:9", **work)
