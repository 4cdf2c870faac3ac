# SPDX-License-Identifier: Apache-2.0
"""The calls of FCsN's programming interface (Table I) on a ring of processes.

============================  ====================================================
FCsN                          here
============================  ====================================================
``System_init``               :func:`initialise`
``Board_init``                :meth:`RingCluster.load`: a ring for each task id
``Board_MEM_init``            :meth:`RingCluster.load`: weights; :meth:`RingCluster.start`: operands
``Check_Kernel``              :meth:`RingCluster.check_kernel`
``Kernel_Start``              :meth:`RingCluster.start`
``Sync_to_Host``              :meth:`RingCluster.synchronise`
``System_Finalize``           :meth:`RingCluster.finalise`
============================  ====================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, Self

from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.model.classifier import Classifier
from n3ic.systems.cluster.kernels import GemmKernel, Kernel
from n3ic.systems.cluster.launch import (
    KernelWork,
    ModelWork,
    Ring,
    RingOptions,
    RingWork,
    ring_on,
    workers,
)
from n3ic.systems.cluster.layered import layered
from n3ic.systems.cluster.matrices import on_cards
from n3ic.systems.cluster.placement import ModelPlacement, even_placement
from n3ic.systems.cluster.session import CoordinatorSession, GemmSession, JobSession, Session
from n3ic.systems.cluster.simulated_cards import simulated_cards


@dataclass(frozen=True, eq=False)
class RunningKernel:
    """A kernel that runs on a ring.

    Attributes:
        task_id: task id of the kernel.
        future: future of the result.
    """

    task_id: str
    future: Future[NDArray[Any]]


class RingCluster:
    """Running nodes and the kernels that are loaded on them; see :func:`initialise`."""

    def __init__(self, nodes: int, options: RingOptions) -> None:
        self._nodes = nodes
        self._options = options
        self._stack = ExitStack()
        self._rings: dict[str, Ring[CoordinatorSession]] = {}
        self._client = self._stack.enter_context(workers(nodes, options.dask))

    def load(
        self,
        task_id: str,
        kernel: Classifier | Kernel | GemmKernel,
        placement: ModelPlacement | None = None,
        simulated: Mapping[int, str] | None = None,
    ) -> None:
        """Load a kernel and its weights on the nodes.

        Args:
            task_id: name by which the kernel is started.
            kernel: a model of binary layers of any size, or an integer kernel.
            placement: placement of a model; even parts of every layer if None.
            simulated: targets of the nodes that are simulated cards, by node.

        Raises:
            ClusterError: The task id is taken, the nodes cannot compute the kernel, or a node
                    does not take its part.
            MissingDependencyError: A simulated card's tool is missing.
        """
        check_computable(kernel)
        if task_id in self._rings:
            raise ClusterError(f"task id {task_id!r} is already loaded")
        options = self._options
        cards = {*options.cards, *(simulated or {})}
        # Each kernel gets a ring of its own, so kernels do not wait for each other's rows.
        work: RingWork[Any]
        if isinstance(kernel, Classifier):
            network = layered(kernel)
            placed = placement or even_placement(network, self._nodes, single=cards)
            work = ModelWork(network, placed)
        else:
            work = KernelWork(on_cards(kernel) if cards else kernel, self._nodes)
        if simulated:
            faults = options.faults
            simulators = self._stack.enter_context(
                simulated_cards(work, simulated, loss=faults.loss, seed=faults.seed)
            )
            options = replace(
                options,
                cards=dict(options.cards) | simulators.addresses,
                addresses=dict(options.addresses) | simulators.neighbours,
            )
        ring: AbstractContextManager[Ring[Any]] = ring_on(self._client, work, options)
        # The stack stops rings in reverse order, and the worker processes last.
        self._rings[task_id] = self._stack.enter_context(ring)

    def check_kernel(self, task_id: str) -> None:
        """Check that a kernel is loaded and its ring runs.

        Raises:
            ClusterError: The kernel is not loaded, or a node has died or failed.
        """
        error = self._ring(task_id).session.home.error
        if error is not None:
            raise error

    def start(self, task_id: str, *operands: Any) -> RunningKernel:
        """Start a kernel; others may be started before this one has ended.

        Args:
            task_id: task id of the kernel.
            *operands: packed inputs of a model, the first matrix of GEMM, or the operands of the
                kernel's ``job``.

        Raises:
            ClusterError: The kernel is not loaded, has failed, or takes other operands.
        """
        session = self._ring(task_id).session
        # load() makes no other session; the check tells the type checker so.
        assert isinstance(session, Session | GemmSession | JobSession)  # noqa: S101
        return RunningKernel(task_id, session.submit(*operands))

    def synchronise(self, started: RunningKernel) -> NDArray[Any]:
        """Wait for a result.

        Raises:
            ClusterError: A node has died or failed.
        """
        return started.future.result()

    def finalise(self) -> None:
        """Stop all rings and the processes that were started for them."""
        self._stack.close()
        self._rings.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finalise()

    def process_ids(self, task_id: str) -> dict[int, int]:
        """Return the process id of each node of a kernel's ring."""
        return self._ring(task_id).process_ids()

    def _ring(self, task_id: str) -> Ring[CoordinatorSession]:
        try:
            return self._rings[task_id]
        except KeyError:
            loaded = ", ".join(sorted(self._rings)) or "none"
            raise ClusterError(f"task id {task_id!r} is not loaded; loaded: {loaded}") from None


def check_computable(kernel: object) -> None:
    """Check that the nodes of a ring can compute a kernel.

    Raises:
        ClusterError: The object is neither a binary model nor an integer kernel; for a PyTorch
            module the error names the first layer.
    """
    if isinstance(kernel, Kernel | GemmKernel):
        return
    if isinstance(kernel, Classifier):
        layered(kernel)
        return
    what = type(kernel).__name__ + _layer_text(kernel)
    raise ClusterError(
        f"a ring cannot compute {what}; it computes the fully connected binary layers of a "
        "BinaryModel (n3ic train writes one, BinaryModel.load reads it), and the integer kernels "
        "GemmKernel, SparseKernel and ConvolutionKernel (initialise(), then load())"
    )


def _layer_text(kernel: object) -> str:
    """Describe the first layer of a PyTorch module; empty for anything else."""
    named = getattr(kernel, "named_modules", None)
    if not callable(named):
        return ""
    # A module without children is a layer; a layer that is the whole module has an empty name.
    name, layer = next((n, m) for n, m in named() if not any(True for _ in m.children()))
    return f", whose layer {name!r} is {layer}" if name else f", the layer {layer}"


def initialise(nodes: int, options: RingOptions | None = None) -> RingCluster:
    """Start the processes of a cluster; use it as a context manager, or finalise it.

    Args:
        nodes: number of nodes.
        options: how to start them; with ``cards`` or ``addresses`` only one ring can be loaded.

    Raises:
        ClusterError: No Dask scheduler answers.
        MissingDependencyError: distributed is not installed.

    Examples:
        >>> with initialise(4) as cluster:  # doctest: +SKIP
        ...     cluster.load("classify", model)
        ...     started = cluster.start("classify", words)
        ...     scores = cluster.synchronise(started)
    """
    return RingCluster(nodes, options or RingOptions())
