"""Where a network goes on the NFP: mode, memory, threads, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from n3ic.exporters.nfp import blob

from n3ic.bits import word_count
from n3ic.export import Device, Fit, Options, Placement, Problem
from n3ic.model import BinaryModel

MEMORIES = ("cls", "ctm", "imem", "emem")  # the fastest first
DISPATCHERS_PER_ME = 2  # paper, appendix A: "two of such threads per ME is enough"


@dataclass(frozen=True)
class Plan:
    """How a network is laid out.

    Attributes:
        mode: ``data`` (a thread a network) or ``model`` (a chain of threads a network).
        memory: where the weights are.
        state: where a thread keeps a layer's bits: ``cls`` or ``lmem``.
        threads: threads that run networks (data) or take part in one (model: executors).
        slots: threads that take questions: all (data) or the dispatchers (model).
        state_bytes: what one thread keeps.
        reserve: bytes of CLS that are left to the rest of the firmware.
    """

    mode: str
    memory: str
    state: str
    threads: int
    slots: int
    state_bytes: int
    reserve: int

    @property
    def executors(self) -> int:
        """Length of the execution chain of model-parallel mode."""
        return self.threads

    @property
    def executors_per_me(self) -> int:
        """Executors of one micro-engine: 4 as in the paper's example, 6 where 4 are too few."""
        return 4 if self.threads <= 240 else 6


def plan(model: BinaryModel, options: Options, device: Device) -> Plan:
    """The layout that the options ask for; ``auto`` takes the fastest memory that fits."""
    mode, memory = str(options["mode"]), str(options["memory"])
    choices = []
    if mode in ("auto", "data"):
        # A network that CLS cannot hold is cut up rather than moved to a slower memory.
        names = MEMORIES if memory == "auto" else (memory,)
        if mode == "auto":
            names = names[:1]
        choices = [_plan(model, options, device, "data", name) for name in names]
    if mode in ("auto", "model"):
        name = "emem" if memory == "auto" else memory
        choices.append(_plan(model, options, device, "model", name))
    fitting = [p for p in choices if not _missing(model.shape, _masked(model), p, device, model)]
    return (fitting or choices[:1] if memory != "auto" else fitting or choices[-1:])[0]


def _plan(model: BinaryModel, options: Options, device: Device, mode: str, memory: str) -> Plan:
    words = max(word_count(layer.n_inputs) for layer in model.layers)
    reserve = int(options["cls-reserve"])
    state, classes = str(options["state"]), len(model.classes)
    if mode == "data":
        threads = int(options["threads"])
        kept = 4 * (2 * words + classes + len(model.input.features))
        return Plan(mode, memory, state, threads, threads, kept, reserve)
    widest = max((word_count(layer.n_outputs) for layer in model.hidden), default=classes)
    chosen = int(options["executors"])
    executors = chosen or max(2, min(int(device.limits["executors"]), widest))
    kept = 4 * (words + classes + len(model.input.features))
    return Plan(mode, memory, state, executors, DISPATCHERS_PER_ME, kept, reserve)


def threads_per_island(p: Plan, device: Device) -> int:
    """Threads of the fullest island that keep state in its CLS."""
    threads = p.threads + (p.slots if p.mode == "model" else 0)
    limits = device.limits
    return min(
        -(-threads // int(limits["islands"])) if p.mode == "data" else threads,
        int(limits["mes_per_island"] * limits["threads_per_me"]),
    )


def available(p: Plan, device: Device) -> int:
    """Bytes that the plan's memory has for weights, beside threads and firmware."""
    limits = device.limits
    size = device.memory(p.memory).bytes
    if p.memory == "emem":
        size = int(limits["emem_dram_bytes"])
    if p.memory == "cls":
        size -= p.reserve
        if p.state == "cls":
            size -= threads_per_island(p, device) * p.state_bytes
        return size
    return size - int(limits[f"reserve_{p.memory}"])


def _masked(model: BinaryModel) -> tuple[bool, ...]:
    return tuple(layer.mask is not None for layer in model.layers)


def _fixed_bytes(model: BinaryModel) -> int:
    spec = model.input
    cuts = sum(len(f.cuts) for f in spec.fields)
    words = blob.HEADER_WORDS + blob.LAYER_WORDS * len(model.layers)
    return 4 * (words + blob.FIELD_WORDS * len(spec.fields) + cuts)


def _missing(
    shape: tuple[int, ...], masked: tuple[bool, ...], p: Plan, device: Device, model: BinaryModel
) -> int:
    need = _fixed_bytes(model) + 4 * sum(blob.word_counts(shape, masked))
    return max(0, need - available(p, device))


def check(model: BinaryModel, p: Plan, device: Device) -> Fit:
    """What goes where, and what does not fit."""
    built, problems = blob.build(model), []
    placements = [Placement(part, p.memory, size) for part, size in built.sections.items() if size]
    per_island = threads_per_island(p, device)
    on_state = per_island if p.state == "cls" else int(device.limits["threads_per_me"])
    placements.append(Placement(f"state of {on_state} threads", p.state, on_state * p.state_bytes))
    placements.append(Placement("mailbox", "imem", _mailbox_bytes(model, p)))
    missing = _missing(model.shape, _masked(model), p, device, model)
    if missing:
        problems.append(_weights_problem(model, p, device, missing))
    state_room = (
        device.memory("cls").bytes - p.reserve
        if p.state == "cls"
        else int(device.limits["lmem_bytes"] - device.limits["reserve_lmem"])
    )
    short = on_state * p.state_bytes - state_room
    if short > 0:
        problems.append(
            Problem(
                f"{on_state} threads keep {p.state_bytes} bytes each of layer inputs in "
                f"{p.state.upper()}, {short} bytes more than it has",
                memory=p.state,
                missing_bytes=short,
                nearest=_nearest_state(model, p, on_state, state_room),
            )
        )
    chain = 60 * p.executors_per_me
    if p.mode == "model" and p.threads > chain:
        problems.append(Problem(f"a chain has at most {chain} executors, not {p.threads}"))
    if len(placements) and max(model.shape) > 1 << 16:
        problems.append(Problem("a layer has at most 65536 neurons"))
    return Fit(tuple(placements), tuple(problems))


def _mailbox_bytes(model: BinaryModel, p: Plan) -> int:
    asked = max(model.input.n_words, len(model.input.features))
    return 4 * p.slots * (3 + asked + len(model.classes))


def _weights_problem(model: BinaryModel, p: Plan, device: Device, missing: int) -> Problem:
    room = available(p, device) - _fixed_bytes(model)
    sums = accumulate(4 * n for n in blob.word_counts(model.shape, _masked(model)))
    layer = next((i for i, end in enumerate(sums) if end > room), 0)
    return Problem(
        f"layer {layer} ({model.shape[layer]} inputs, {model.shape[layer + 1]} neurons) does not "
        f"fit {p.memory.upper()} beside the {p.state_bytes} bytes of state of each thread: "
        f"{missing} bytes are missing",
        layer=layer,
        memory=p.memory,
        missing_bytes=missing,
        nearest=_nearest(model, p, device),
    )


def _nearest(model: BinaryModel, p: Plan, device: Device) -> str:
    """The widest shape with the same proportions whose weights fit."""
    masked = _masked(model)
    for step in range(255, 0, -1):
        hidden = tuple(max(1, n * step // 256) for n in model.shape[1:-1])
        shape = (model.shape[0], *hidden, model.shape[-1])
        if not _missing(shape, masked, p, device, model):
            return "-".join(map(str, shape))
    return ""


def _nearest_state(model: BinaryModel, p: Plan, threads: int, room: int) -> str:
    words = room // threads // 4 - (p.state_bytes // 4 - _wide_words(model) * _copies(p))
    widest = 32 * (words // _copies(p))
    if widest < model.shape[0] or widest < 1:
        return f"{threads * room // max(1, threads * p.state_bytes)} threads of the same network"
    return "-".join(str(min(n, widest)) for n in model.shape)


def _wide_words(model: BinaryModel) -> int:
    return max(word_count(layer.n_inputs) for layer in model.layers)


def _copies(p: Plan) -> int:
    return 2 if p.mode == "data" else 1
