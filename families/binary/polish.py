# SPDX-License-Identifier: Apache-2.0
"""Polishes a network: coordinate descent on the integers themselves.

Training changes real numbers, and their signs may not follow. Polishing changes the integers: it
flips a weight or shifts a threshold if that lowers the cross-entropy of the integer network on the
training rows. The effect of every single move of a neuron is computed exactly and at once. With
everything else fixed, the loss is a constant plus the cost of firing, summed over the rows on which
the neuron fires. A flip changes the neuron's output only on rows whose popcount is next to the
threshold. See docs/explanation/accuracy-tried.md for the gain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError
from n3ic.model.bits import Words, unpack
from n3ic.model.layers import Connections
from n3ic.model.network import BinaryModel
from n3ic.util.signals import check

Floats = NDArray[np.float32]

_SHIFTS = (-3, -2, -1, 1, 2, 3)  # tried moves of a threshold alone
_NEWTON_STEPS = 8


@dataclass
class _Layer:
    """A layer during polishing: weights of +-1, or 0 for an absent connection."""

    weights: Floats
    offsets: NDArray[np.int32]  # thresholds of a hidden layer, biases of the output layer
    fan_in: NDArray[np.int32]

    def popcounts(self, x: Floats) -> NDArray[np.int32]:
        return ((x @ self.weights.T + self.fan_in) / 2).astype(np.int32)

    def fires(self, popcounts: NDArray[np.int32]) -> Floats:
        return np.where(popcounts >= self.offsets, np.float32(1), np.float32(-1))


def polish(
    model: BinaryModel,
    words: Words,
    label: NDArray[np.int64],
    *,
    rounds: int = 4,
    min_gain: float = 3.0,
    max_moves: int = 8,
    q: float = 0.0,
    class_weight: NDArray[np.floating] | None = None,
    seed: int = 0,
) -> BinaryModel:
    """Flip weights and shift thresholds and biases as long as that lowers the loss.

    Args:
        model: the network to start from; its masks do not change.
        words: packed inputs of training rows, uint32 array of shape ``(rows, n_words)``.
        label: class index of each row, shape ``(rows,)``.
        rounds: number of rounds over all neurons; the search ends sooner if no move helps.
        min_gain: least gain of a move, in nats summed over all rows. A larger value makes fewer
            moves, and fewer that fit noise.
        max_moves: maximum number of moves of one neuron in one pass.
        q: the loss is the generalized cross-entropy ``(1 - p^q) / q`` of the probability p of a
            row's class; 0 is the cross-entropy.
        class_weight: weight of a row of each class, shape ``(classes,)``; None for 1.
        seed: seed of the order in which neurons are visited.

    Returns:
        A network of the same shape, input and names. The loss, at the temperature that minimises
        the cross-entropy, never rises within a round.

    Raises:
        ModelError: the shapes of words and labels do not match each other or the model.
    """
    label = np.asarray(label)
    if len(words) != len(label) or not len(label):
        raise ModelError(f"{len(words)} rows and {len(label)} labels; expected one label a row")
    if label.min() < 0 or label.max() >= len(model.classes):
        raise ModelError(f"labels are class indices below {len(model.classes)}")
    rng = np.random.default_rng(seed)
    model.scores(words[:1])  # checks shape, type and padding
    words, label, weight = _distinct(words, label)
    if class_weight is not None:
        weight = weight * class_weight[label]
    x = np.where(unpack(words, model.input.n_bits), np.float32(1), np.float32(-1))
    layers = [
        *(_open(layer, layer.thresholds) for layer in model.hidden),
        _open(model.output, model.output.bias),
    ]
    for _ in range(rounds):
        check()
        search = _Search(layers, x, label, weight, min_gain, max_moves, q)
        if not search.sweep(rng):
            break
    return _close(model, layers)


def _distinct(
    words: Words, label: NDArray[np.int64]
) -> tuple[Words, NDArray[np.int64], NDArray[np.float64]]:
    """Merge equal pairs of row and label, and count them: few bits make few different rows."""
    labelled = np.column_stack([words, label.astype(np.uint32)])
    keys = np.ascontiguousarray(labelled).view(f"V{4 * labelled.shape[1]}")[:, 0]
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    order = np.argsort(first)
    return words[first[order]], label[first[order]], counts[order].astype(np.float64)


def _open(layer: Connections, offsets: NDArray[np.int32]) -> _Layer:
    weights = np.where(layer.weights, np.float32(1), np.float32(-1))
    if layer.mask is not None:
        weights = weights * layer.mask
    return _Layer(weights.astype(np.float32), offsets.copy(), layer.fan_in)


def _close(model: BinaryModel, layers: list[_Layer]) -> BinaryModel:
    hidden = tuple(
        replace(old, weights=new.weights >= 0, thresholds=new.offsets)
        for old, new in zip(model.hidden, layers[:-1], strict=True)
    )
    output = replace(model.output, weights=layers[-1].weights >= 0, bias=layers[-1].offsets)
    return replace(model, hidden=hidden, output=output)


class _Search:
    """One pass of coordinate descent over layers that it changes in place."""

    def __init__(
        self,
        layers: list[_Layer],
        x: Floats,
        label: NDArray[np.int64],
        weight: NDArray[np.float64],
        min_gain: float,
        max_moves: int,
        q: float = 0.0,
    ) -> None:
        self.layers = layers
        self.x = x
        self.label = label
        self.weight = weight
        self.min_gain = min_gain
        self.max_moves = max_moves
        self.q = q
        self.temperature = self._temperature(self._scores(0, x))

    # --- the loss ---------------------------------------------------------------------------

    def _scores(self, first: int, x: Floats) -> NDArray[np.int32]:
        """Compute the scores from the inputs of layer ``first``."""
        for layer in self.layers[first:-1]:
            x = layer.fires(layer.popcounts(x))
        return self.layers[-1].popcounts(x) + self.layers[-1].offsets

    def _loss(self, scores: NDArray[np.int32]) -> NDArray[np.float64]:
        """Compute the loss of each row, times its count."""
        own = np.take_along_axis(scores, self.label[:, None], axis=1)
        if scores.shape[1] == 2:
            other = np.take_along_axis(scores, 1 - self.label[:, None], axis=1)
            # Few score differences exist: look the loss up instead of computing it for each row.
            difference = (other - own)[:, 0]
            low = int(difference.min())
            values = np.arange(low, int(difference.max()) + 1)
            losses = self._bounded(np.logaddexp(0, self.temperature * values))
            return np.asarray(self.weight * losses[difference - low])
        behind = (scores - own) * self.temperature
        most = behind.max(axis=1)
        rows = most + np.log(np.exp(behind - most[:, None]).sum(axis=1))
        return np.asarray(self.weight * self._bounded(rows), dtype=np.float64)

    def _bounded(self, entropy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert cross-entropies to the loss."""
        return -np.expm1(-self.q * entropy) / self.q if self.q else entropy

    def _temperature(self, scores: NDArray[np.int32]) -> float:
        """Find the factor from scores to logits with the least cross-entropy (Newton's method)."""
        s = scores.astype(np.float64)
        own = np.take_along_axis(s, self.label[:, None], axis=1)[:, 0]
        best = 0.25
        for _ in range(_NEWTON_STEPS):
            p = np.exp(best * (s - s.max(1, keepdims=True)))
            p /= p.sum(1, keepdims=True)
            mean = (p * s).sum(1)
            slope = float(self.weight @ (mean - own))
            curve = float(self.weight @ ((p * s * s).sum(1) - mean * mean))
            if curve <= 0:
                break
            # Far from the optimum a Newton step may overshoot, even below 0: bound it.
            best = float(np.clip(best - slope / curve, best / 2, best * 2))
        return best

    # --- the moves --------------------------------------------------------------------------

    def sweep(self, rng: np.random.Generator) -> int:
        """Visit every neuron once; return the number of moves."""
        moves, x = 0, self.x
        for depth, layer in enumerate(self.layers[:-1]):
            popcounts = layer.popcounts(x)
            fires = layer.fires(popcounts)
            following = self.layers[depth + 1]
            ahead = following.popcounts(fires)
            for j in rng.permutation(len(layer.weights)):
                column = following.weights[:, j]
                # The next layer's popcounts without this neuron; it adds 1 where it agrees.
                base = ahead - (fires[:, j, None] * column > 0)
                cost = self._after(depth + 1, base + (column > 0)) - self._after(
                    depth + 1, base + (column < 0)
                )
                move_count, popcounts[:, j] = self._neuron(layer, int(j), x, popcounts[:, j], cost)
                if move_count:
                    fires[:, j] = np.where(popcounts[:, j] >= layer.offsets[j], 1, -1)
                    moves += move_count
                ahead = base + (fires[:, j, None] * column > 0)
            x = fires
        return moves + self._output(x)

    def _after(self, depth: int, popcounts: NDArray[np.int32]) -> NDArray[np.float64]:
        """Compute the loss of each row from the popcounts of layer ``depth``."""
        layer = self.layers[depth]
        if depth == len(self.layers) - 1:
            return self._loss(popcounts + layer.offsets)
        return self._loss(self._scores(depth + 1, layer.fires(popcounts)))

    def _neuron(
        self,
        layer: _Layer,
        j: int,
        x: Floats,
        popcounts: NDArray[np.int32],
        cost: NDArray[np.float64],
    ) -> tuple[int, NDArray[np.int32]]:
        """Improve one neuron; ``cost`` is what firing adds to the loss of each row."""
        weights = layer.weights[j]
        popcounts = popcounts.copy()
        top = int(layer.fan_in[j]) + 1
        absent = np.where(weights == 0, np.inf, 0.0)
        for move_count in range(self.max_moves):
            t = int(layer.offsets[j])
            best, shift, flip = -self.min_gain, 0, -1
            for step in _SHIFTS:
                if 0 <= t + step <= top:
                    # A lower threshold lets rows from t + step on fire, a higher one stops them.
                    low, high = sorted((t, t + step))
                    change = float(cost[(popcounts >= low) & (popcounts < high)].sum())
                    change = change if step < 0 else -change
                    if change < best:
                        best, shift, flip = change, step, -1
            # A flip lowers the popcount by one where weight and input match, else raises it: with
            # the threshold moved by -1, 0 or 1, only rows from t - 2 to t + 1 can change.
            match, differ = {}, {}
            for offset in (-2, -1, 0, 1):
                near = np.flatnonzero(popcounts == t + offset)
                total = float(cost[near].sum())
                signed = cost[near].astype(np.float32) @ x[near]
                match[offset] = (total + weights * signed) / 2
                differ[offset] = total - match[offset]
            changes = {
                0: differ[-1] - match[0],
                -1: differ[-1] + differ[-2],
                1: -match[0] - match[1],
            }
            for step, change_of in changes.items():
                if 0 <= t + step <= top:
                    i = int(np.argmin(change_of + absent))
                    if change_of[i] + absent[i] < best:
                        best, shift, flip = float(change_of[i]), step, i
            if best >= -self.min_gain:
                return move_count, popcounts
            layer.offsets[j] += shift
            if flip >= 0:
                popcounts -= (x[:, flip] * weights[flip]).astype(np.int32)
                weights[flip] = -weights[flip]
        return self.max_moves, popcounts

    def _output(self, x: Floats) -> int:
        """Flip weights and shift biases of the output layer, one at a time."""
        layer = self.layers[-1]
        scores = layer.popcounts(x) + layer.offsets
        loss, moves = float(self._loss(scores).sum()), 0
        for c, k in np.ndindex(*layer.weights.shape):
            if layer.weights[c, k] == 0:
                continue
            trial = scores.copy()
            trial[:, c] -= (x[:, k] * layer.weights[c, k]).astype(np.int32)
            lower = float(self._loss(trial).sum())
            if lower < loss - self.min_gain:
                layer.weights[c, k] = -layer.weights[c, k]
                scores, loss, moves = trial, lower, moves + 1
        for c in range(len(layer.offsets)):
            for step in (-1, 1):
                trial = scores.copy()
                trial[:, c] += step
                lower = float(self._loss(trial).sum())
                if lower < loss - self.min_gain:
                    layer.offsets[c] += step
                    scores, loss, moves = trial, lower, moves + 1
        return moves
