# SPDX-License-Identifier: Apache-2.0
"""Run every network of a card in its island's micro-C, with tenants interleaved at random."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.nfp import runner
from n3ic.model.bits import Words, unpack, word_count
from n3ic.model.difference import first_difference
from n3ic.model.network import SHUNT, BinaryModel, Inference
from n3ic.systems.card.compile import Branch
from n3ic.systems.card.export import CardCheck
from n3ic.systems.card.frames import HOST, RequestFrame, joined, traffic, words_of
from n3ic.systems.card.nfp.image import Island, NfpCardImage
from n3ic.util.process import run_tool

Row = NDArray[np.uint32]
_SECONDS = 300
_THREADS = 8  # threads that flood the token buckets
_FLOOD = 500  # frames per thread in a flood
_BITS, _FEATURES = 1, 2
_SHUNT = 0xFFFFFFFF  # N3IC_SHUNT


def verify_card(image: NfpCardImage, directory: Path, packets: int) -> CardCheck:
    """Compare scores, verdicts, hidden bits, joins and token buckets; see the base class.

    A network in several islands is verified in each of them.
    """
    card = image.card
    asked = traffic(card, packets)
    questions: list[tuple[Branch, bytes]] = [
        (branch, each.frame[card.offset :][: branch.input_bytes])
        for each in asked
        for branch in card.graphs[each.graph].branches
    ]
    inferences = 0
    seen: dict[int, Row] = {}
    for island in image.islands:
        # Answers come back in the order of the questions of this island; places map them back.
        places = [i for i, q in enumerate(questions) if q[0].task in island.networks]
        mine = [questions[i] for i in places]
        answers = _ask(directory, image, island, mine)
        seen |= zip(places, answers[:, :2], strict=True)  # result and margin
        for branch in {id(b): b for b, _ in mine}.values():
            at = [i for i, (b, _) in enumerate(mine) if b is branch]
            words = words_of(branch.model, [mine[i][1] for i in at], features=branch.features)
            found = first_difference(branch.model, _trace(image, branch.model, answers[at]), words)
            if found is not None:
                raise VerifyError(f"island {island.index}: {branch.task}: {found}")
            inferences += len(at)
    _check_joins(directory, image, asked, [seen[i] for i in range(len(questions))])
    check_rates(directory, image, asked)
    counts = Counter(each.graph for each in asked)
    version = runner.version(runner.compiler())
    return CardCheck(
        f"micro-C of {len(image.islands)} islands on the host ({version})",
        len(asked),
        inferences,
        {g.name: counts[i] for i, g in enumerate(card.graphs)},
    )


def _check_joins(
    directory: Path, image: NfpCardImage, asked: Sequence[RequestFrame], results: Sequence[Row]
) -> None:
    """Compare how the data plane's C joins the islands' results.

    Args:
        directory: the export.
        image: image of the export.
        asked: the request frames.
        results: result and margin of each branch of each frame.

    Raises:
        VerifyError: A result or the number of results differs.
    """
    rows = np.zeros((len(asked), 1 + 2 * image.branches), dtype=np.uint32)
    left = iter(results)
    for row, each in zip(rows, asked, strict=True):
        row[0] = each.graph
        for b in range(len(each.results)):
            row[1 + 2 * b : 3 + 2 * b] = next(left)
    answers = _run_host(directory, "n3ic_card_join_host.c", (), rows.tobytes())
    if answers.size != len(asked) * (1 + 3 * image.branches):
        raise VerifyError(f"the join: {answers.size} words for {len(asked)} packets")
    for words, each in zip(answers.reshape(len(asked), -1).tolist(), asked, strict=True):
        graph = image.card.graphs[each.graph]
        expected = [
            (r.model, _SHUNT if r.verdict == HOST else r.verdict, r.margin)
            for r in joined(graph.join, each.results)
        ]
        found = [tuple(words[1 + 3 * i : 4 + 3 * i]) for i in range(words[0])]
        if found != expected:
            raise VerifyError(f"the join: {graph.name}: {found}, expected {expected}")


def check_rates(directory: Path, image: NfpCardImage, asked: Sequence[RequestFrame]) -> None:
    """Compare the frames that the token buckets pass, at their rates and in a flood.

    Raises:
        VerifyError: A wrong frame passes, or a flood passes a wrong number of frames.
    """
    rng = np.random.default_rng(6)
    buckets, tenants = image.buckets, [g.tenant for g in image.card.graphs]
    tick = max(b.full for b in buckets)
    held = [Fraction(b.burst) for b in buckets]  # buckets are full at the first frame
    last = [tick] * len(buckets)
    rows, expected = [], []
    for each in asked:
        tenant = tenants[each.graph]
        bucket = buckets[tenant]
        # Lengths and times are such that some frames pass and some do not.
        length = int(rng.integers(1, bucket.burst))
        tick += int(rng.integers(bucket.full // len(buckets) + 2))
        # Exact fractions: floats would round where the micro-C counts in units of 2^-32 bytes.
        come = Fraction(bucket.step * (tick - last[tenant]), 1 << 32)
        held[tenant] = min(Fraction(bucket.burst), held[tenant] + come)
        last[tenant] = tick
        expected.append(length <= held[tenant])
        held[tenant] -= length * expected[-1]
        rows.append((each.graph, length, tick))
    if [bool(a) for a in _admitted(directory, rows, 1)] != expected:
        raise VerifyError("the token buckets: another frame passes than those within the rates")
    # At this tick all buckets are full, and it never advances, so exactly a burst may pass.
    flood = max(b.full for b in buckets)
    graphs = [tenants.index(t) for t in range(len(buckets))]
    lengths = [-(-b.burst // _FLOOD) for b in buckets]
    rows = [(graphs[t], lengths[t], flood) for _ in range(2 * _FLOOD) for t in range(len(buckets))]
    passed: Counter[int] = Counter()
    for row, answer in zip(rows, _admitted(directory, rows, _THREADS), strict=True):
        passed[row[0]] += answer
    for t, bucket in enumerate(buckets):
        if passed[graphs[t]] != bucket.burst // lengths[t]:
            raise VerifyError(
                f"the token bucket of {image.card.tenants[t].name}: {passed[graphs[t]]} frames of "
                f"{lengths[t]} bytes pass at once, expected {bucket.burst // lengths[t]}"
            )


def _admitted(directory: Path, rows: Sequence[tuple[int, int, int]], threads: int) -> list[int]:
    """Ask the buckets about frames, given as graph, bytes and tick."""
    words = [(graph, length, tick & 0xFFFFFFFF, tick >> 32) for graph, length, tick in rows]
    given = np.array(words, dtype=np.uint32).tobytes()
    answers = _run_host(directory, "n3ic_card_rate_host.c", (), given, str(threads))
    if answers.size != len(rows):
        raise VerifyError(f"the token buckets: {answers.size} answers about {len(rows)} frames")
    return [int(answer) for answer in answers]


def _ask(
    directory: Path, image: NfpCardImage, island: Island, questions: list[tuple[Branch, bytes]]
) -> NDArray[np.uint32]:
    """Run an island on questions; return one row per answer.

    Raises:
        MissingDependencyError: No C compiler is installed.
        VerifyError: The micro-C does not compile or run.
    """
    rows = np.zeros((len(questions), 2 + image.ask_words), dtype=np.uint32)
    for row, (branch, field) in zip(rows, questions, strict=True):
        held = _question(branch, field)
        row[0] = island.networks.index(branch.task)
        row[1] = _FEATURES if branch.features else _BITS
        row[2 : 2 + len(held)] = held
    define = f"-DN3IC_ISLAND={island.index}"
    answers = _run_host(directory, "n3ic_card_host.c", (define,), rows.tobytes())
    width = 2 + image.classes + image.hidden_words
    if answers.size != len(questions) * width:
        raise VerifyError(f"island {island.index}: {answers.size} words for {len(questions)} rows")
    return answers.reshape(-1, width)


def _run_host(
    directory: Path, name: str, options: Sequence[str], given: bytes, *arguments: str
) -> Row:
    """Compile a program of the export, run it, and return the words that it writes."""
    with tempfile.TemporaryDirectory(prefix="n3ic-nfp-") as folder:
        program = Path(folder) / "program"
        source = directory.resolve() / "host" / name
        _call([runner.compiler(), *runner.FLAGS, *options, "-o", str(program), str(source)], b"")
        return np.frombuffer(_call([str(program), *arguments], given), dtype=np.uint32)


def _question(branch: Branch, field: bytes) -> Words:
    if branch.features:
        return np.frombuffer(field, dtype=">u4").astype(np.uint32)
    return np.asarray(words_of(branch.model, [field], features=branch.features)[0], dtype=np.uint32)


def _trace(image: NfpCardImage, model: BinaryModel, answers: NDArray[np.uint32]) -> Inference:
    classes = len(model.classes)
    scores = answers[:, 2 : 2 + classes].view(np.int32).copy()
    at, hidden = 2 + image.classes, []
    for layer in model.hidden:
        end = at + word_count(layer.n_outputs)
        hidden.append(unpack(np.ascontiguousarray(answers[:, at:end]), layer.n_outputs))
        at = end
    shunted = answers[:, 0] == _SHUNT
    verdicts = np.where(shunted, SHUNT, answers[:, 0].astype(np.int64))
    return Inference(
        scores,
        # A shunted row carries no class, so the class is what the scores would say.
        np.where(shunted, np.argmax(scores, axis=1), verdicts),
        answers[:, 1].view(np.int32).copy(),
        tuple(hidden),
        verdicts,
    )


def _call(command: list[str], given: bytes) -> bytes:
    name = Path(command[0]).name
    try:
        done = run_tool(command, seconds=_SECONDS, stdin=given)
    except subprocess.TimeoutExpired as error:
        raise VerifyError(f"{name} took more than {_SECONDS} s") from error
    except OSError as error:
        raise VerifyError(f"{name} did not start: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reason = next((line for line in said if "error" in line), said[-1] if said else "")
        raise VerifyError(f"{name}: {reason[:400] or 'no reason given'}")
    return done.stdout
