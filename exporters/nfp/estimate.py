# SPDX-License-Identifier: Apache-2.0
"""Latency and throughput of the NFP, estimated from the memory table of the paper.

Data-parallel mode: an inference reads ``W`` words of weights and thresholds. ``T`` threads run on
``T / 8`` micro-engines with clock ``f`` and ``c`` cycles per word. ``t`` is the middle of the
weight memory's access times (Table 3), and ``s`` that of the memory that holds the layer's bits.
The latency is the largest of three terms:

- one thread alone takes ``W (t + s + c / f)``: it waits for each word and then counts it;
- the 8 threads of a micro-engine share it: ``8 W c / f``;
- IMEM and EMEM serve ``B`` words per microsecond to all threads: ``T W / B``.

The throughput is the smallest of ``M f / (W c + p)`` (``M`` micro-engines, ``p`` cycles to forward
a packet), of ``T`` divided by the first term and, for IMEM and EMEM, of ``B / W``.

Three constants are fitted to the paper, whose 256-32-16-2 reads 274 words (it has no thresholds):
``c`` = 15.3 makes ``8 W c / f`` equal its 42 us, ``p`` = 2560 gives its 7.1 Mpps, and ``B`` = 384
gives its 1.4 Mpps.

Model-parallel mode takes ``words / C + 2 E h`` per layer. ``C`` words per microsecond stream from
EMEM to the whole chain. A notification from one of the ``E`` executors to the next takes ``h``.
Both constants are fitted to the two ends of Figure 25 (4096 inputs; 2048 and 16384 neurons take 400
and 2700 us) with 256 executors.
"""

from __future__ import annotations

from dataclasses import dataclass

from n3ic.exporters.nfp.blob import word_counts
from n3ic.model.network import shape_text
from n3ic.targets.device import Device

PAPER_SHAPES = (
    ((256, 32, 16, 2), "data", "cls", 480),
    ((256, 32, 16, 2), "data", "imem", 480),
    ((256, 32, 16, 2), "data", "emem", 480),
    ((152, 128, 64, 2), "data", "cls", 480),
    ((4096, 2048), "model", "emem", 256),
    ((4096, 16384), "model", "emem", 256),
)


@dataclass(frozen=True)
class MicroEngineEstimate:
    """Estimated performance of a network.

    Attributes:
        words: words read per inference.
        latency_us: time of one inference under load, in microseconds.
        throughput: inferences per second.
        latency_formula: the latency's formula with its numbers, as text.
        throughput_formula: the throughput's formula with its numbers, as text.
    """

    words: int
    latency_us: float
    throughput: float
    latency_formula: str
    throughput_formula: str


@dataclass(frozen=True)
class Accesses:
    """What one inference accesses.

    Attributes:
        words: maximum number of words read from the memory of the weights; a word with the numbers
            of two input bits counts as two, because each number takes the cycles of a word.
        accesses: maximum number of accesses to the thread's state: features, bits, indices, values
            and scores.
    """

    words: int
    accesses: int


def estimate(
    device: Device,
    shape: tuple[int, ...],
    masked: tuple[bool, ...],
    mode: str,
    memory: str,
    state: str,
    threads: int,
) -> MicroEngineEstimate:
    """Estimate latency and throughput of a shape by the module's formulas."""
    layers = word_counts(shape, masked)
    if mode == "model":
        return _chain(device, layers, threads)
    # A layer's bits are in the thread's state, which is accessed once for each word of weights.
    return threads_estimate(device, sum(layers), 1.0, memory, state, threads)


def threads_estimate(
    device: Device, words: int, accesses: float, memory: str, state: str, threads: int
) -> MicroEngineEstimate:
    """Estimate latency and throughput of data-parallel threads.

    Args:
        device: the device.
        words: words that one inference reads from the memory of the weights.
        accesses: mean number of accesses to the thread's state per word of weights.
        memory: memory of the weights.
        state: memory of a thread's state, ``cls`` or ``lmem``.
        threads: threads that run networks.
    """
    limits = device.limits
    f = device.clock_mhz
    c, served = limits["cycles_per_word"], limits["shared_words_per_us"]
    per_me = limits["threads_per_me"]
    mes = min(-(-threads // per_me), limits["islands"] * limits["mes_per_island"])
    here = min(per_me, threads)
    # State in local memory costs no wait, because each micro-engine has its own.
    wait = _access_us(device, memory)
    if state == "cls":
        wait += accesses * _access_us(device, "cls")
    alone = (words * (wait + c / f), f"{words} words x ({wait * 1e3:.1f} ns wait + {c} cycles)")
    shared = (
        here * words * c / f,
        f"{here:.0f} threads of a micro-engine x {words} words x {c} cycles",
    )
    ways = [alone, shared]
    rates = [
        (
            mes * f * 1e6 / (words * c + limits["forwarding_cycles"]),
            f"{mes:.0f} micro-engines x {f:.0f} MHz / ({words} words x {c} cycles + "
            f"{limits['forwarding_cycles']:.0f} cycles of forwarding)",
        ),
        (threads * 1e6 / alone[0], f"{threads} threads / {alone[0]:.1f} us"),
    ]
    if memory in ("imem", "emem"):
        ways.append(
            (threads * words / served, f"{threads} threads x {words} words / {served:.0f} per us")
        )
        rates.append((served * 1e6 / words, f"{served:.0f} words per us / {words} words"))
    latency, throughput = max(ways), min(rates)  # pairs: the formula follows its value
    return MicroEngineEstimate(words, latency[0], throughput[0], latency[1], throughput[1])


def _chain(device: Device, layers: tuple[int, ...], executors: int) -> MicroEngineEstimate:
    limits = device.limits
    hop = limits["chain_hop_ns"] / 1e3
    stream = limits["chain_words_per_us"]
    # Each layer starts with a notification down the whole chain and ends with one back.
    latency = sum(words / stream + 2 * executors * hop for words in layers)
    text = (
        f"{sum(layers)} words / {stream:.0f} per us + {len(layers)} layers x 2 x {executors} "
        f"executors x {hop * 1e3:.0f} ns"
    )
    return MicroEngineEstimate(
        sum(layers), latency, 1e6 / latency, text, f"one inference at a time: 1 / ({text})"
    )


def _access_us(device: Device, memory: str) -> float:
    m = device.memory(memory)
    return (m.access_ns_min + m.access_ns_max) / 2e3


def paper_key(kind: str, shape: tuple[int, ...], mode: str, memory: str, threads: int) -> str:
    """Return the name by which ``device.toml`` lists the paper's figure for a layout."""
    return f"{kind}.{shape_text(shape)}.{mode}.{memory}.{threads}"


def calibration(device: Device) -> tuple[str, ...]:
    """Compare the estimate with each of the paper's figures, one line each."""
    lines = []
    for shape, mode, memory, threads in PAPER_SHAPES:
        e = estimate(device, shape, (False,) * (len(shape) - 1), mode, memory, "cls", threads)
        for kind, value, unit in (
            ("latency_us", e.latency_us, "us"),
            ("throughput", e.throughput, "inference/s"),
        ):
            paper = device.paper.get(paper_key(kind, shape, mode, memory, threads))
            if paper is not None:
                lines.append(
                    f"{shape_text(shape)}, {mode}-parallel, {memory.upper()}, {threads} threads: "
                    f"paper {paper:,.0f} {unit}, estimated {value:,.0f} {unit} "
                    f"({100 * (value / paper - 1):+.0f} %)"
                )
    return tuple(lines)
