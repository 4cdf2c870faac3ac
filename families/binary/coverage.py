# SPDX-License-Identifier: Apache-2.0
"""Finds the weight bits that a set of vectors decides, and vectors that decide more of them.

A vector decides a weight bit if an executor with a wrong bit gives another result on it. A hidden
neuron at its threshold stops firing if a bit that agrees is flipped. A neuron just below its
threshold starts firing if a bit that disagrees is flipped. Thus two inputs decide every bit of a
neuron: one at the threshold, and one that differs from it in one agreeing bit. The neuron's output
must be seen; if an executor reports only scores, it must change a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import WORD_BITS, Bits, Words, pack, unpack
from n3ic.model.layers import HiddenLayer
from n3ic.model.network import BinaryModel
from n3ic.model.verification_vectors import at_threshold, boundary_vectors

_ROWS = 1024  # rows of one batch
_ROUNDS = 48
_IDLE_ROUNDS = 6  # rounds without progress after which the rest counts as out of reach
_SOUGHT = 4  # neurons of each later layer for which a round makes inputs
_MAX_SOUGHT = 1 << 26  # weights x inputs that a descent visits, at most
_CELLS = 1 << 24  # rows x weight words of a round, at most


@dataclass(frozen=True, eq=False)
class Coverage:
    """The decided weight bits of a network.

    Attributes:
        layers: bool array of shape ``(outputs, inputs)`` per layer, True where a connection's
            weight bit is decided; absent connections are False.
        total: number of connections.
    """

    layers: tuple[Bits, ...]
    total: int

    @property
    def decided(self) -> int:
        """Number of weight bits that are decided."""
        return sum(int(layer.sum()) for layer in self.layers)

    def lines(self, model: BinaryModel) -> list[str]:
        """The neurons with undecided weight bits, one line per layer."""
        out = []
        for i, (layer, known) in enumerate(zip(model.layers, self.layers, strict=True)):
            missing = layer.fan_in - known.sum(axis=1)
            incomplete = np.flatnonzero(missing)
            if len(incomplete):
                neurons = ", ".join(f"{j} ({missing[j]})" for j in incomplete[:20].tolist())
                more = ", ..." if len(incomplete) > 20 else ""
                out.append(
                    f"layer {i}: {int(missing.sum()):,} of {int(layer.fan_in.sum()):,} weight bits "
                    f"not decided, in neurons {neurons}{more}"
                )
        return out


def coverage(model: BinaryModel, words: Words, *, hidden: bool) -> Coverage:
    """Find exactly the weight bits of a network that some vectors decide.

    Args:
        model: the network.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``.
        hidden: whether hidden bits are also compared.
    """
    left = _connections(model)
    for start in range(0, len(words), _ROWS):
        _strike(model, words[start : start + _ROWS], left, hidden)
        if not any(layer.any() for layer in left):
            break
    known = tuple(
        unpack(layer.mask_words & ~undecided, layer.n_inputs)
        for layer, undecided in zip(model.layers, left, strict=True)
    )
    return Coverage(known, sum(int(layer.fan_in.sum()) for layer in model.layers))


def deciding_vectors(model: BinaryModel, seed: int = 0, *, hidden: bool = False) -> Words:
    """Find a few vectors that decide as many weight bits as possible.

    The search makes inputs that put neurons of the first layer at their thresholds. For later
    layers it tries random inputs, variations of inputs that were useful or came near, and inputs
    made for a neuron layer by layer. It ends after some rounds; :func:`coverage` reports what it
    missed.

    Args:
        model: the network.
        seed: seed of the search.
        hidden: whether hidden bits are also compared.

    Returns:
        Packed inputs, uint32 array of shape ``(rows, n_words)``.
    """
    rng = np.random.default_rng(seed)
    left = _connections(model)
    useful = boundary_vectors(model, rng)
    selections = [useful[_strike(model, pack(useful), left, hidden)]]
    cells = sum(layer.n_outputs * layer.n_words for layer in model.layers)
    rows = int(np.clip(_CELLS // cells, 64, 2 * _ROWS))  # fewer for large networks: bounded time
    near = useful
    distance, idle = np.inf, 0
    for _ in range(_ROUNDS):
        if idle == _IDLE_ROUNDS or not any(layer.any() for layer in left):
            break
        pool = np.concatenate(
            [_candidates(model, left[0], useful, near, rows, rng), *_sought(model, left, rng)]
        )
        hits = _strike(model, pack(pool), left, hidden)
        selections.append(pool[hits])
        useful = np.concatenate([useful, pool[hits]])
        near, missing = _nearest(model, np.concatenate([near, pool]), left)
        idle = 0 if len(hits) or missing < distance else idle + 1
        distance = missing
    return pack(np.concatenate(selections))


def _candidates(
    model: BinaryModel, left: Words, useful: Bits, near: Bits, rows: int, rng: np.random.Generator
) -> Bits:
    """Make inputs to try: random, varied from useful and near ones, at first-layer thresholds."""
    n = model.input.n_bits
    parts = [rng.random((rows // 4, n)) < rng.random((rows // 4, 1))]
    for parents in (useful, near):
        chosen = parents[rng.integers(0, len(parents), rows // 4)]
        # 1 to 16 flips on average: small steps refine, larger ones leave a plateau.
        flips = rng.random((rows // 4, n)) < rng.choice([1, 2, 4, 16], (rows // 4, 1)) / n
        parts.append(chosen ^ flips)
    layer = model.layers[0]
    neurons = np.flatnonzero(left.any(axis=1))
    if isinstance(layer, HiddenLayer) and len(neurons):
        at = rng.permutation(np.resize(neurons, rows // 8))
        parts += [at_threshold(layer, int(j), rng) for j in at]
    return np.concatenate(parts)


def _sought(model: BinaryModel, left: list[Words], rng: np.random.Generator) -> list[Bits]:
    """Make inputs, layer by layer, that put a few later neurons at their thresholds."""
    inputs = []
    for i in range(1, len(model.hidden)):
        before = model.hidden[:i]
        if sum(layer.weights.size * layer.n_inputs for layer in before) > _MAX_SOUGHT:
            continue  # the descent would take longer than all the rest
        neurons = np.flatnonzero(left[i].any(axis=1))
        for j in rng.permutation(neurons)[:_SOUGHT]:
            for outputs in at_threshold(model.hidden[i], int(j), rng):
                x = outputs
                for layer in reversed(before):
                    x = _descend(layer, x, rng)
                inputs.append(x[None, :])
    return inputs


def _descend(layer: HiddenLayer, outputs: Bits, rng: np.random.Generator) -> Bits:
    """Search for an input on which a layer gives wanted outputs, or nearly, by greedy bit flips.

    Args:
        layer: the layer.
        outputs: bool array of shape ``(outputs,)``.
        rng: draws the start, and breaks ties between flips.

    Returns:
        bool array of shape ``(inputs,)``.
    """
    x = rng.random(layer.n_inputs) < 0.5
    # Agreement of each input with each neuron's wanted side: +1, -1, 0 without a connection.
    sides = np.where(layer.weights == x, 1, -1) * np.where(outputs, 1, -1)[:, None]
    if layer.mask is not None:
        sides = sides * layer.mask
    popcounts = layer.popcounts(pack(x[None, :]))[0]
    # Flips that each neuron still needs; 0 or less where its output is as wanted.
    lacks = np.where(outputs, layer.thresholds - popcounts, popcounts - layer.thresholds + 1)
    for _ in range(2 * layer.n_inputs):  # a greedy descent may cycle
        if (lacks <= 0).all():
            break
        # A flip of input k adds column k of `sides` to the needs; at 0, +1 spoils the output.
        weight = (lacks > 0).astype(np.int64)
        cost = weight @ sides + (lacks == 0).astype(np.int64) @ (sides > 0)
        k = int(np.argmin(cost + rng.random(layer.n_inputs)))
        lacks = lacks + sides[:, k]
        sides[:, k] *= -1
        x[k] ^= True
    return x


def _nearest(model: BinaryModel, pool: Bits, left: list[Words]) -> tuple[Bits, int]:
    """Select the inputs nearest to the thresholds of later neurons with undecided bits.

    Returns:
        Those inputs, and the sum of their distances.
    """
    x = pack(pool)
    best: list[NDArray[Any]] = [np.array([0])]
    total = 0
    for i, layer in enumerate(model.hidden):
        popcounts = layer.popcounts(x)
        if i:
            undecided = left[i].any(axis=1)
            # Measured from halfway: at the threshold and one below it are equally near.
            distances = np.abs(2 * (popcounts - layer.thresholds) + 1)[:, undecided]
            best.append(np.argmin(distances, axis=0))
            total += int(distances.min(axis=0).sum())
        x = pack(popcounts >= layer.thresholds)
    return pool[np.unique(np.concatenate(best))], total


def _connections(model: BinaryModel) -> list[Words]:
    """Pack the connections of each layer, from which decided ones are then cleared."""
    return [layer.mask_words.copy() for layer in model.layers]


def _strike(model: BinaryModel, words: Words, left: list[Words], hidden: bool) -> NDArray[Any]:
    """Clear the bits of ``left`` that the vectors decide; return the indices of needed rows."""
    hits: list[NDArray[Any]] = [np.empty(0, dtype=np.int64)]
    x = words
    for i, layer in enumerate(model.hidden):
        popcounts = layer.popcounts(x)
        out = pack(popcounts >= layer.thresholds)
        over = popcounts - layer.thresholds
        for j in np.flatnonzero(left[i].any(axis=1)):
            # One wrong bit moves a popcount by one: it shows at the threshold and one below only.
            rows = np.flatnonzero((over[:, j] == 0) | (over[:, j] == -1))
            agree = ~(x[rows] ^ layer.weight_words[j])
            bits = np.where(over[rows, j, None] == 0, agree, ~agree) & left[i][j]
            new = bits.any(axis=1)
            if not hidden:
                new[new] = _seen(model, i, int(j), out[rows[new]])
            rows, bits = rows[new], bits[new]
            if len(rows):  # the rows with the most bits first, so that few are needed
                order = np.argsort(-np.bitwise_count(bits).sum(axis=1), kind="stable")
                struck = np.bitwise_or.accumulate(bits[order], axis=0)
                grew = np.concatenate([[True], (struck[1:] != struck[:-1]).any(axis=1)])
                hits.append(rows[order[grew]])
                left[i][j] &= ~struck[-1]
        x = out
    if len(words) and left[-1].any():
        left[-1][:] = 0  # a score tells its popcount: any vector decides its weights
        hits.append(np.array([0]))
    return np.unique(np.concatenate(hits))


def _seen(model: BinaryModel, layer: int, neuron: int, outputs: Words) -> Bits:
    """Find the rows on which the output of one neuron changes the scores.

    Args:
        model: the network.
        layer: the neuron's layer.
        neuron: its index.
        outputs: packed outputs of that layer, uint32 array of shape ``(rows, words)``.
    """
    flipped = outputs.copy()
    flipped[:, neuron // WORD_BITS] ^= np.uint32(1 << neuron % WORD_BITS)
    hidden_words = np.concatenate([outputs, flipped])
    for following in model.hidden[layer + 1 :]:
        hidden_words = following.fire(hidden_words)
    # Only the scores count: a change that later neurons absorb is not seen.
    scores = model.output.scores(hidden_words)
    return np.asarray((scores[: len(outputs)] != scores[len(outputs) :]).any(axis=1))
