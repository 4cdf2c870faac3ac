# SPDX-License-Identifier: Apache-2.0
"""Run calls in parallel, on this machine's cores or on a Dask cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from n3ic.errors import N3icError, needed
from n3ic.util.signals import check, held

T = TypeVar("T")
Call = tuple[Any, ...]
_WAIT_S = 10


def parallel_map(
    function: Callable[..., T],
    calls: Iterable[Call],
    *,
    jobs: int | None = None,
    dask: str | None = None,
) -> Iterator[tuple[int, T]]:
    """Call a function with each tuple of arguments, several at once.

    Args:
        function: a function of a module, so that another process can import it.
        calls: the arguments of each call.
        jobs: calls that run at once on this machine, each on one core; all cores if None.
        dask: address of a Dask scheduler (``tcp://host:8786``) whose workers have n3ic installed;
            this machine's cores if None.

    Yields:
        The number of a call, from 0, and what it returned, in the order in which they end.

    Raises:
        MissingDependencyError: ``dask`` is given and distributed is not installed.
        N3icError: the scheduler is unreachable, lost or without workers; or a worker was killed.
    """
    if dask is None:
        yield from _on_cores(function, calls, jobs or os.cpu_count() or 1)
        return
    with _client(dask) as client:
        yield from _on_cluster(function, calls, client, dask)


def _on_cores(
    function: Callable[..., T], calls: Iterable[Call], jobs: int
) -> Iterator[tuple[int, T]]:
    from multiprocessing.resource_tracker import ensure_running

    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        parallel = Parallel(return_as="generator_unordered")
        ensure_running()  # joblib would start it later, and unblock the signals in doing so
        with held():  # workers inherit the blocked signals: only this process ends them
            results = parallel(delayed(_numbered)(i, function, c) for i, c in enumerate(calls))
        try:
            for outcome in results:
                check()
                yield outcome
        except TerminatedWorkerError as error:
            raise N3icError(
                "a worker process was killed, probably because memory ran out: let fewer run at "
                "once (--jobs)"
            ) from error


def _on_cluster(
    function: Callable[..., T], calls: Iterable[Call], client: Any, address: str
) -> Iterator[tuple[int, T]]:
    """The same on a Dask cluster: one call per core, and as many calls that wait for a core."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker, as_completed
    from distributed.comm import CommClosedError

    left = enumerate(calls)
    running = as_completed([])

    def submit(count: int) -> None:
        for i, call in islice(left, count):
            # Not pure: otherwise Dask would reuse the result of an equal call.
            running.add(client.submit(_numbered, i, function, call, pure=False))

    try:
        submit(2 * sum(client.ncores().values()))
        for future in running:
            check()
            outcome: tuple[int, T] = future.result()
            submit(1)
            yield outcome
    except (CancelledError, CommClosedError) as error:  # the second if it was lost in a message
        raise N3icError(
            f"the Dask scheduler at {address} was lost; start one again, then the same command"
        ) from error
    except KilledWorker as error:
        raise N3icError(
            f"workers of the Dask scheduler at {address} were killed again and again, probably "
            "because memory ran out; give each more memory, or fewer threads"
        ) from error


def _numbered(number: int, function: Callable[..., T], arguments: Call) -> tuple[int, T]:
    return number, function(*arguments)


@contextmanager
def _client(address: str) -> Iterator[Any]:
    """A client of a Dask scheduler that has workers.

    Failures are raised as errors of n3ic, so Dask's own log is silenced.
    """
    with needed("a Dask cluster"):
        import dask
        from distributed import Client
        from distributed.utils import silence_logging_cmgr
    # Pass tables with the calls, so that they do not vanish with a worker that dies.
    large = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
    with silence_logging_cmgr(logging.CRITICAL + 1), large:
        try:
            client = Client(address, timeout=f"{_WAIT_S}s")
        except (OSError, ValueError, TimeoutError) as error:
            raise N3icError(f"no Dask scheduler answers at {address}: {error}") from error
        with client:
            try:
                client.wait_for_workers(1, timeout=_WAIT_S)
            except (OSError, TimeoutError) as error:
                raise N3icError(
                    f"the Dask scheduler at {address} has no worker; start one: dask worker "
                    f"{address}"
                ) from error
            yield client
