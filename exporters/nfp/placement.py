# SPDX-License-Identifier: Apache-2.0
"""Places a network on the NFP: mode, memory, threads, and problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from n3ic.exporters.nfp import blob
from n3ic.model.bits import word_count
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel
from n3ic.options import Options
from n3ic.targets.device import Device, Fit, Placement, Problem
from n3ic.targets.shape_search import nearest_shape

MEMORIES = ("cls", "ctm", "imem", "emem")  # fastest first
DISPATCHERS_PER_ME = 2  # paper, appendix A: "two of such threads per ME is enough"


@dataclass(frozen=True)
class ThreadPlan:
    """Layout of a network.

    Attributes:
        mode: ``data`` (a thread per network) or ``model`` (a chain of threads per network).
        memory: memory that holds the weights.
        state: memory in which a thread keeps a layer's bits: ``cls`` or ``lmem``.
        threads: threads that run networks (data) or the executors of one network (model).
        slots: threads that accept requests: all (data) or the dispatchers (model).
        state_bytes: bytes of state of one of ``threads``.
        dispatcher_bytes: bytes of state of all dispatchers of an island.
        reserve: bytes of CLS reserved for the rest of the firmware.
    """

    mode: str
    memory: str
    state: str
    threads: int
    slots: int
    state_bytes: int
    dispatcher_bytes: int
    reserve: int

    @property
    def executors(self) -> int:
        """Length of the chain of executors in model-parallel mode."""
        return self.threads

    @property
    def executors_per_me(self) -> int:
        """Executors per micro-engine: 4 as in the paper's example, 6 if 4 are too few."""
        return 4 if self.threads <= 240 else 6


def plan(model: BinaryModel, options: Options, device: Device) -> ThreadPlan:
    """Plan the layout from the options; ``auto`` takes the fastest memory that fits."""
    mode, memory = str(options["mode"]), str(options["memory"])
    choices = []
    if mode in ("auto", "data"):
        # A network that does not fit CLS goes to a chain of threads, not to slower memory.
        names = MEMORIES if memory == "auto" else (memory,)
        if mode == "auto":
            names = names[:1]
        choices = [_plan(model, options, device, "data", name) for name in names]
    if mode in ("auto", "model"):
        name = "emem" if memory == "auto" else memory
        choices.append(_plan(model, options, device, "model", name))
    fitting = [p for p in choices if not _problems(model, p, device)]
    if fitting:
        return fitting[0]
    return choices[-1] if memory == "auto" else choices[0]


def _plan(
    model: BinaryModel, options: Options, device: Device, mode: str, memory: str
) -> ThreadPlan:
    words = max(word_count(layer.n_inputs) for layer in model.layers)
    if mode == "data":
        return data_plan(model, words, options, memory)
    reserve, state, classes = int(options["cls-reserve"]), str(options["state"]), len(model.classes)
    serving = serving_bytes(model, words)
    # An executor computes whole words of 32 neurons, so more executors than words would idle.
    widest = max((word_count(layer.n_outputs) for layer in model.hidden), default=classes)
    chosen = int(options["executors"])
    executors = chosen or max(2, min(int(device.limits["executors"]), widest))
    slots = DISPATCHERS_PER_ME
    return ThreadPlan(mode, memory, state, executors, slots, 4 * words, slots * serving, reserve)


def data_plan(model: Classifier, words: int, options: Options, memory: str) -> ThreadPlan:
    """Plan threads that each run a whole network, with ``words`` words of bits in their state."""
    threads, reserve = int(options["threads"]), int(options["cls-reserve"])
    serving = serving_bytes(model, words)
    return ThreadPlan("data", memory, str(options["state"]), threads, threads, serving, 0, reserve)


def serving_bytes(model: Classifier, words: int) -> int:
    """Bytes of the arrays of ``n3ic_serve()``."""
    return 4 * (2 * words + len(model.classes) + len(model.input.features))


def threads_per_island(p: ThreadPlan, device: Device) -> int:
    """Number of ``plan.threads`` on the fullest island, which share its CLS for their state."""
    limits = device.limits
    mes = int(limits["mes_per_island"])
    if p.mode == "data":
        return min(-(-p.threads // int(limits["islands"])), mes * int(limits["threads_per_me"]))
    return min(p.executors, mes * p.executors_per_me)


def spread(sizes: Sequence[int], room: int, islands: int, threads: int) -> tuple[int, ...] | None:
    """Distribute networks over islands, first fit in order of decreasing size.

    Args:
        sizes: bytes of each network's blob.
        room: bytes for weights in the memory of an island.
        islands: number of islands.
        threads: threads per island, of which each network needs one.

    Returns:
        Number of networks of each island in use; None if they do not all fit.
    """
    room_left, count = [room] * islands, [0] * islands
    for size in sorted(sizes, reverse=True):
        island = next(
            (i for i in range(islands) if room_left[i] >= size and count[i] < threads), None
        )
        if island is None:
            return None
        room_left[island] -= size
        count[island] += 1
    return tuple(c for c in count if c)


def available(p: ThreadPlan, device: Device) -> int:
    """Return the bytes of the plan's memory that threads and firmware leave for weights."""
    limits = device.limits
    size = device.memory(p.memory).bytes
    if p.memory == "emem":
        size = int(limits["emem_dram_bytes"])
    if p.memory == "cls":
        size -= p.reserve
        if p.state == "cls":
            size -= state_bytes(p, device)
        return size
    return size - int(limits[f"reserve_{p.memory}"])


def _masked(model: BinaryModel) -> tuple[bool, ...]:
    return tuple(layer.mask is not None for layer in model.layers)


def _fixed_bytes(model: BinaryModel) -> int:
    spec = model.input
    cuts = sum(len(f.cuts) for f in spec.fields)
    words = blob.HEADER_WORDS + blob.LAYER_WORDS * len(model.layers)
    return 4 * (words + blob.FIELD_WORDS * len(spec.fields) + cuts + (model.shunt > 0))


def _missing(
    shape: tuple[int, ...],
    masked: tuple[bool, ...],
    p: ThreadPlan,
    device: Device,
    model: BinaryModel,
) -> int:
    need = _fixed_bytes(model) + 4 * sum(blob.word_counts(shape, masked))
    return max(0, need - available(p, device))


def check(model: BinaryModel, p: ThreadPlan, device: Device) -> Fit:
    """Place the parts of the network in memories, and list what does not fit."""
    placements = placed(model, blob.build(model).sections, p, device)
    return Fit(placements, _problems(model, p, device))


def placed(
    model: Classifier, sections: Mapping[str, int], p: ThreadPlan, device: Device
) -> tuple[Placement, ...]:
    """Place the sections of a blob, the threads' state and the mailbox."""
    threads = state_threads(p, device)
    return (
        *(Placement(part, p.memory, size) for part, size in sections.items() if size),
        Placement(f"state of {threads} threads", p.state, state_bytes(p, device)),
        Placement("mailbox", "imem", mailbox_bytes(model, p)),
    )


def _problems(model: BinaryModel, p: ThreadPlan, device: Device) -> tuple[Problem, ...]:
    problems = []
    missing = _missing(model.shape, _masked(model), p, device, model)
    if missing:
        problems.append(_weights_problem(model, p, device, missing))
    for problem in state_problems(p, device):
        threads, room = state_threads(p, device), state_room(p, device)
        problems.append(replace(problem, nearest=_nearest_state(model, p, threads, room)))
    chain = int(device.limits["islands"] * device.limits["mes_per_island"]) * p.executors_per_me
    if p.mode == "model" and p.threads > chain:
        problems.append(Problem(f"a chain has at most {chain} executors, not {p.threads}"))
    return tuple(problems)


def state_problems(
    p: ThreadPlan, device: Device, what: str = "layer inputs"
) -> tuple[Problem, ...]:
    """List the problem of threads whose state does not fit its memory; ``what`` names the state."""
    room = state_room(p, device)
    short = state_bytes(p, device) - room
    if short <= 0:
        return ()
    threads = state_threads(p, device)
    return (
        Problem(
            f"{threads} threads keep {p.state_bytes} bytes of {what} each in "
            f"{p.state.upper()}, {short} bytes more than it has; "
            f"{max(0, room - p.dispatcher_bytes) // p.state_bytes} threads would fit there",
            memory=p.state,
            missing_bytes=short,
        ),
    )


def state_bytes(p: ThreadPlan, device: Device) -> int:
    """Return the bytes of state in the CLS of one island or the LMEM of one micro-engine."""
    return state_threads(p, device) * p.state_bytes + p.dispatcher_bytes


def state_threads(p: ThreadPlan, device: Device) -> int:
    """Return how many threads share one memory for state, on an island or a micro-engine."""
    threads = threads_per_island(p, device)
    if p.state == "cls":
        return threads
    per_me = p.executors_per_me if p.mode == "model" else int(device.limits["threads_per_me"])
    return min(threads, per_me)


def state_room(p: ThreadPlan, device: Device) -> int:
    """Return the bytes of one memory that the firmware leaves for state."""
    if p.state == "cls":
        return device.memory("cls").bytes - p.reserve
    return int(device.limits["lmem_bytes"] - device.limits["reserve_lmem"])


def mailbox_bytes(model: Classifier, p: ThreadPlan) -> int:
    """Bytes of the mailbox: one slot for each thread that accepts requests."""
    question_words = max(model.input.n_words, len(model.input.features))  # a slot takes either form
    return 4 * p.slots * (3 + question_words + len(model.classes))


def _weights_problem(model: BinaryModel, p: ThreadPlan, device: Device, missing: int) -> Problem:
    room = available(p, device) - _fixed_bytes(model)
    sums = accumulate(4 * n for n in blob.word_counts(model.shape, _masked(model)))
    layer = next((i for i, end in enumerate(sums) if end > room), 0)

    def fits(near: tuple[int, ...]) -> bool:
        return not _missing(near, _masked(model), p, device, model)

    return Problem(
        f"layer {layer} ({model.shape[layer]} inputs, {model.shape[layer + 1]} neurons) does not "
        f"fit {p.memory.upper()} beside the {p.state_bytes} bytes of state of each thread: "
        f"{missing} bytes are missing",
        layer=layer,
        memory=p.memory,
        missing_bytes=missing,
        nearest=nearest_shape(model.shape, fits),
    )


def _nearest_state(model: BinaryModel, p: ThreadPlan, threads: int, room: int) -> str:
    """Return the network's shape, with layers narrowed to what the threads' state allows."""
    # A thread's state holds layer inputs, which shrink with the layers, and a fixed rest.
    copies = 2 * threads if p.mode == "data" else threads + 2 * p.slots
    wide = max(word_count(layer.n_inputs) for layer in model.layers)
    rest = threads * p.state_bytes + p.dispatcher_bytes - 4 * copies * wide
    widest = 32 * ((room - rest) // (4 * copies))
    if widest < 1:
        return ""
    return nearest_shape(model.shape, lambda _: True, widest=widest)
