# SPDX-License-Identifier: Apache-2.0
"""Simulates the whole card, ``n3ic_top``, with mixed packets, pauses and model swaps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from n3ic.errors import UsageError, VerifyError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.packet import traffic
from n3ic.exporters.netfpga.packet.traffic import ExpectedResult, Frame
from n3ic.exporters.netfpga.packet.wrapper import (
    SHUNTED,
    PacketFormat,
    feature_widths,
    features_number,
    input_width,
    packet_format,
)
from n3ic.exporters.netfpga.tools import simulate
from n3ic.model import passes
from n3ic.model.bits import Words, unpack
from n3ic.model.classifier import Classifier
from n3ic.model.family import family
from n3ic.model.network import BinaryModel
from n3ic.model.verification_vectors import margin_vectors, verification_vectors
from n3ic.options import Options

MOST_ASKS = 96
LEAST_ASKS = 48
WORK = 2_000_000  # requests x weights that Icarus computes in seconds
IDLE = 300_000  # clocks without a packet after which the card hangs

Another = Callable[[np.random.Generator], tuple[Classifier, list[tuple[int, int]]]]
"""Makes a random model for an executor, and the addresses and words that load it."""


@dataclass(frozen=True)
class CardTrafficCounts:
    """Statistics of a card that passed.

    Attributes:
        packets: number of frames that came out.
        asked: number of those frames that were inference requests.
        swaps: number of bank swaps during the traffic.
        simulator: name of the simulator.
    """

    packets: int
    asked: int
    swaps: int
    simulator: str

    def __str__(self) -> str:
        swaps = f", {self.swaps} swaps of banks" if self.swaps else ""
        return f"n3ic_top with {self.packets} packets, {self.asked} of them requests{swaps}"


def check_card(
    directory: Path,
    model: Classifier,
    options: Options,
    another: Another | None,
    simulator: simulate.Simulator = "auto",
    asks: int = MOST_ASKS,
) -> CardTrafficCounts:
    """Run the card of an export directory and compare every byte that leaves it.

    Requests and other packets come with pauses, and the receiver stalls until the card is full. On
    a card with a write port, traffic goes on while banks are swapped three times: to the other bank
    as initialised, to a random network written into the first bank, and to the network of
    ``update.hex``.

    Args:
        directory: an export directory.
        model: the network that it holds.
        options: options of the export.
        another: makes another model for a core with a write port; None without one.
        simulator: the simulator to use.
        asks: number of requests; fewer, but at least 48, for networks that simulate slowly.

    Raises:
        MissingDependencyError: no simulator is installed.
        VerifyError: the card does not build, loses a packet, or changes a byte that it should not;
            the error names the packet.
    """
    core = CorePorts.load(directory, model)
    form = packet_format(model, options)
    rng = np.random.default_rng(7)
    weights = _work(model)
    copies = max(1, core.modules)
    count = int(np.clip(WORK // (weights * copies), LEAST_ASKS, max(LEAST_ASKS, asks)))
    inputs, words = _inputs(model, options, count, rng)
    frames = traffic.traffic(form, inputs, rng)
    asking = [i for i, frame in enumerate(frames) if traffic.is_request(frame, form)]
    swaps = [asking[count * k // 6] for k in (1, 2, 3)]
    networks: list[Classifier] = [model]
    program: list[tuple[int, int, int]] = []
    if another is not None:
        other, pairs = another(rng)
        networks = [model, other, model]
        program = _program(directory, core, pairs, swaps)
    side = options["input"] == "side"
    width = input_width(model, options)
    stimulus = _Stimulus(
        beats=_beats(frames, swaps if another is not None else [], rng),
        side="".join(f"{_words(data, width)}\n" for data in inputs) if side else "",
        side_w=width if side else 0,
        writes="".join(f"{op:x} {address:x} {word:x}\n" for op, address, word in program),
        data_w=8 * form.beat,
        stall=[len(f.data) > traffic.LONG for f in frames].index(True) - 2,
    )
    # More modules make Verilator's build longer, and hardly change Icarus' run time.
    chosen = simulate.choose_simulator(simulator, short=count * weights <= 2 * WORK)
    out = _simulate(directory, core, stimulus, chosen)
    class_only = options.get("outputs") == "class" and options["style"] == "unrolled"
    answers = [_answers(network, words, class_only=class_only) for network in networks]
    _compare(out, frames, form, answers)
    swapped = len(swaps) if another is not None else 0
    return CardTrafficCounts(len(frames), count, swapped, simulate.version(chosen))


@dataclass(frozen=True)
class _Stimulus:
    """Input files of the bench ``n3ic_top_tb.v``.

    Attributes:
        beats: beats of the packets.
        side: inputs of the side channel; empty without one.
        side_w: width of a side input in bits; 0 without a side channel.
        writes: operations of the write port; empty without one.
        data_w: bits of a beat.
        stall: number of packets after which the receiver stalls.
    """

    beats: str
    side: str
    side_w: int
    writes: str
    data_w: int
    stall: int


def _inputs(
    model: Classifier, options: Options, count: int, rng: np.random.Generator
) -> tuple[list[bytes], Words]:
    """Make inputs as packets or the side channel carry them; return their packed bits too."""
    if options["input-stage"] == "features":
        rows = traffic.edge_features(model.input, count, rng)
        words = model.encode(dict(zip(model.input.features, rows.T, strict=True)))
        widths = feature_widths(model.input, options)
        size = -(-sum(widths) // 8)
        numbers = [features_number(row, widths) for row in rows.tolist()]
        return [number.to_bytes(size, "big") for number in numbers], words
    some = _vectors(model, count)
    words = some[rng.permutation(len(some))[:count]]
    edges = margin_vectors(model)[: count // 3]
    words[rng.choice(count, len(edges), replace=False)] = edges
    bits = unpack(words, model.input.n_bits)
    octets = np.packbits(bits, axis=1, bitorder="little")
    return [row.tobytes()[::-1] for row in octets], words


def _work(model: Classifier) -> int:
    """Cost of an inference for a simulator, in weights of a binary network."""
    if isinstance(model, BinaryModel):
        return sum(layer.weights.size for layer in model.layers)
    return max(1, 10 * model.weight_bytes)  # a model of a few comparisons may count none


def _vectors(model: Classifier, count: int) -> Words:
    if isinstance(model, BinaryModel):
        return verification_vectors(model, count)
    return family(model.family).vectors(passes.unchanged(model), count, 0)


def _words(data: bytes, width: int) -> str:
    """Format a big-endian number as 32-bit words in hexadecimal, the highest first."""
    digits = data.hex().zfill(8 * -(-width // 32))
    return " ".join(digits[i : i + 8] for i in range(0, len(digits), 8))


def _program(
    directory: Path,
    core: CorePorts,
    other: Sequence[tuple[int, int]],
    when: Sequence[int],
) -> list[tuple[int, int, int]]:
    """Format the operations of the write port; see ``n3ic_top_tb.v``."""
    from n3ic.exporters.netfpga.sequential.update import read_update

    try:
        update = read_update(directory / "mem" / "update.hex", core)
    except UsageError as error:
        raise VerifyError(str(error)) from error
    program: list[tuple[int, int, int]] = []
    for packets, pairs in zip(when, ((), other, update.writes), strict=True):
        program += [(0, address, word) for address, word in pairs]
        program += [(3, 0, 0), (2, packets, 0), (1, 0, 0)]
    return program


def _beats(frames: Sequence[Frame], when: Sequence[int], rng: np.random.Generator) -> str:
    """Format the beats of the frames for the bench.

    A few packets before a swap, traffic pauses until all words of the new network are written.
    """
    lines = []
    for i, frame in enumerate(frames):
        marker = sum(i >= at - 4 for at in when)
        for beat in range(frame.beats):
            gap = int(rng.integers(1, 6)) if i // 24 % 2 and rng.random() < 0.4 else 0
            head = (marker, gap, int(beat == frame.beats - 1), i, frame.keep(beat))
            content = frame.content(beat).hex(" ", 4)
            lines.append(" ".join([*(f"{v:x}" for v in head), content]))
    return "\n".join(lines) + "\n"


def _simulate(
    directory: Path, core: CorePorts, stimulus: _Stimulus, simulator: Literal["verilator", "icarus"]
) -> list[str]:
    """Run the bench; return the beats that left the card, one per line."""
    defines = ["N3IC_WRITE_PORT"] if core.write_port else []
    defines += ["N3IC_SIDE"] if stimulus.side_w else []
    parameters = {"DATA_W": stimulus.data_w, "SIDE_W": max(1, stimulus.side_w)}
    parameters |= {"WR_AW": max(1, core.wr_aw), "IDLE": IDLE}
    with tempfile.TemporaryDirectory(prefix="n3ic-card-") as name:
        work = Path(name)
        (work / "in.txt").write_text(stimulus.beats)
        (work / "side.txt").write_text(stimulus.side)
        (work / "write.txt").write_text(stimulus.writes)
        sources = sorted(str(p) for p in (directory.resolve() / "rtl").glob("*.v"))
        run = simulate.compile_bench(work, simulator, "n3ic_top_tb", parameters, defines, sources)
        plus = [f"+{k}={work / f'{k}.txt'}" for k in ("in", "out", "side", "write")]
        plus.append(f"+stall={stimulus.stall}")
        cwd = simulate.memory_folder(directory.resolve(), work)
        what = f"the card ({simulate.version(simulator)})"
        simulate.call([*run, *plus], cwd, simulate.RUN_SECONDS, what)
        return (work / "out.txt").read_text().splitlines()


def _answers(model: Classifier, words: Words, *, class_only: bool) -> list[ExpectedResult]:
    inference = model.infer(words)
    margins = np.zeros_like(inference.margins) if class_only else inference.margins
    return [
        ExpectedResult(int(model.digest[:8], 16), int(verdict) & SHUNTED, int(margin))
        for verdict, margin in zip(model.verdicts(inference.scores), margins, strict=True)
    ]


def _compare(
    lines: Sequence[str],
    frames: Sequence[Frame],
    form: PacketFormat,
    answers: Sequence[Sequence[ExpectedResult]],
) -> None:
    """Compare the card's output beat by beat, with the networks answering in turn."""
    beats = [line.split() for line in lines]
    at = requests = network = 0
    for i, frame in enumerate(frames):
        got = beats[at : at + frame.beats]
        at += frame.beats
        if not traffic.is_request(frame, form):
            candidates: list[ExpectedResult | None] = [None]
        else:
            candidates = [a[requests] for a in answers[network : network + 2]]
            requests += 1
        fits = [got == _expected(i, frame, form, answer) for answer in candidates]
        if not any(fits):
            raise VerifyError(_mismatch(i, frame, form, got, candidates))
        network += fits.index(True)
    if at != len(beats):
        raise VerifyError(f"the card: {len(beats)} beats left it, {at} are expected")
    # Without the model's id in the packet, a swap shows only if the last answers differ.
    last = slice(len(answers[0]) * 7 // 8, None)
    values = [[(a.label, a.margin) for a in of[last]] for of in answers]
    shows_swap = form.in_packet or all(a != b for a, b in pairwise(values))
    if network != len(answers) - 1 and shows_swap:
        raise VerifyError(f"the card: of {len(answers)} networks in turn {network + 1} answered")


def _expected(
    index: int, frame: Frame, form: PacketFormat, answer: ExpectedResult | None
) -> list[list[str]]:
    data = traffic.expected_frame(frame, form, answer)
    user = traffic.expected_tuser(index, form, answer)
    return [
        [
            str(int(beat == frame.beats - 1)),
            f"{frame.keep(beat):0{frame.size // 4}x}",
            f"{user:032x}",
            frame.content(beat, data).hex(),
        ]
        for beat in range(frame.beats)
    ]


def _mismatch(
    index: int,
    frame: Frame,
    form: PacketFormat,
    got: Sequence[Sequence[str]],
    candidates: Sequence[ExpectedResult | None],
) -> str:
    """Describe what is wrong with a packet, in one sentence."""
    where = f"the card: packet {index}, {len(frame.data)} bytes"
    if len(got) != frame.beats:
        return f"{where}: {len(got)} of its {frame.beats} beats left"
    if candidates == [None]:
        return f"{where}: not a request, but changed"
    bytes_ = b"".join(bytes.fromhex(b[3].replace("x", "0"))[::-1] for b in got)
    answer = bytes_[form.result_at : form.result_at + 10].hex(" ") if form.in_packet else got[0][2]
    expected = " or ".join(
        f"model {a.model:08x}, class {a.label}, margin {a.margin}" for a in candidates if a
    )
    return f"{where}: answer {answer}, expected {expected}"
