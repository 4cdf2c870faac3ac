"""Calls that run side by side: on this machine's cores or on a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from n3ic.errors import MissingDependencyError, N3icError
from n3ic.util.signals import check, held

T = TypeVar("T")
Call = tuple[Any, ...]


def each(
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
        The number of a call, from 0, and what it returned: in the order in which they end on this
        machine, in the order of the calls on a cluster.

    Raises:
        MissingDependencyError: ``dask`` is given and distributed is not installed.
        N3icError: the scheduler cannot be reached, or a worker process was killed.
    """
    from multiprocessing.resource_tracker import ensure_running

    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with _workers(jobs, dask):
        # joblib's Dask backend gives results in the order of the calls only
        parallel = Parallel(return_as="generator" if dask else "generator_unordered")
        ensure_running()  # joblib would start it later, and that lets the signals through again
        with held():  # workers inherit that: this process alone is to end them
            results = parallel(delayed(_numbered)(i, function, c) for i, c in enumerate(calls))
        try:
            for found in results:
                check()
                yield found
        except TerminatedWorkerError as error:
            raise N3icError(
                "a worker process was killed, as the system does where memory runs out: let fewer "
                "run at once (--jobs)"
            ) from error


def _numbered(number: int, function: Callable[..., T], arguments: Call) -> tuple[int, T]:
    return number, function(*arguments)


@contextmanager
def _workers(jobs: int | None, dask: str | None) -> Iterator[None]:
    from joblib import parallel_config

    if dask is None:
        count = jobs or os.cpu_count() or 1
        with parallel_config("loky", n_jobs=count, inner_max_num_threads=1):
            yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingDependencyError(
            "a Dask cluster needs distributed; install it with: pip install 'n3ic[cluster]'"
        ) from error
    try:
        client = Client(dask, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise N3icError(f"no Dask scheduler answers at {dask}: {error}") from error
    with client, parallel_config("dask"):
        yield
