# SPDX-License-Identifier: Apache-2.0
"""Calls side by side whose processes end as they should not."""

import signal
import sys
import threading
from math import gcd

import pytest

from n3ic.errors import MissingDependencyError, N3icError
from n3ic.util import parallel
from n3ic.util.parallel import parallel_map


def test_a_worker_that_is_killed_is_one_error():
    with pytest.raises(N3icError, match="a worker process was killed"):
        list(parallel_map(signal.raise_signal, [(signal.SIGKILL,)] * 2, jobs=2))


def thread_name():
    return threading.current_thread().name


@pytest.fixture
def dask_cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=0, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp"
    ) as cluster:
        yield cluster


def test_a_dask_cluster_of_one_core_computes_all_calls_itself(dask_cluster):
    dask_cluster.scale(1)
    threads = dict(parallel_map(thread_name, [()] * 5, dask=dask_cluster.scheduler_address))
    assert sorted(threads) == [0, 1, 2, 3, 4]
    assert threading.current_thread().name not in threads.values()


def test_a_dask_cluster_gives_the_same_results_as_this_machine_s_cores(dask_cluster):
    dask_cluster.scale(1)
    calls = [(7, 3), (2, 5), (9, 4), (1, 1)]
    far = dict(parallel_map(gcd, calls, dask=dask_cluster.scheduler_address))
    assert far == dict(parallel_map(gcd, calls, jobs=2)) == dict(enumerate(gcd(*c) for c in calls))


def test_a_dask_address_without_distributed_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    # without either library, the first import that fails is dask's
    with pytest.raises(MissingDependencyError, match=r"needs (dask|distributed),.*n3ic\[cluster\]"):
        list(parallel_map(gcd, [(7, 3)], dask="tcp://127.0.0.1:1"))


def test_a_dask_scheduler_that_is_lost_is_one_error(dask_cluster, capfd):
    dask_cluster.scale(1)
    results = parallel_map(thread_name, [()] * 5, dask=dask_cluster.scheduler_address)
    next(results)
    dask_cluster.close()
    with pytest.raises(N3icError, match=r"the Dask scheduler at tcp.* was lost; start one again"):
        list(results)
    assert capfd.readouterr().err == ""


def test_a_dask_scheduler_that_is_lost_while_a_result_is_fetched_is_one_error(
    dask_cluster, monkeypatch
):
    comm = pytest.importorskip("distributed.comm")

    def closed(future):
        raise comm.CommClosedError("in <TCP (closed)>: Stream is closed")

    monkeypatch.setattr("distributed.Future.result", closed)
    dask_cluster.scale(1)
    with pytest.raises(N3icError, match=r"the Dask scheduler at tcp.* was lost; start one again"):
        list(parallel_map(thread_name, [()] * 5, dask=dask_cluster.scheduler_address))


def test_a_dask_scheduler_without_workers_is_one_error(dask_cluster, monkeypatch):
    monkeypatch.setattr(parallel, "_WAIT_S", 1)
    with pytest.raises(N3icError, match="has no worker; start one: dask worker tcp"):
        list(parallel_map(thread_name, [()], dask=dask_cluster.scheduler_address))
