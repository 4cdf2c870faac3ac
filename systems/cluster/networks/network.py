# SPDX-License-Identifier: Apache-2.0
"""A network of integers: a list of operations, computed whole or in contiguous parts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ClusterError, ModelError
from n3ic.systems.cluster.networks.operations import Array, Integers, Operation, arrays_of
from n3ic.systems.cluster.scrubbing import array_digest


@dataclass(frozen=True, eq=False)
class NetworkStep:
    """An operation of a network.

    Attributes:
        operation: the operation.
        inputs: numbers of the values that it takes. Value 0 is the network's input, value ``i + 1``
            the result of step ``i``.
        name: the node of the captured graph that it computes.
    """

    operation: Operation
    inputs: tuple[int, ...]
    name: str = ""

    @property
    def bytes(self) -> int:
        """Bytes of its numbers in a process, as float32."""
        values = (getattr(self.operation, field.name) for field in fields(self.operation))  # type: ignore[arg-type]
        return sum(4 * value.size for value in values if isinstance(value, np.ndarray))


@dataclass(frozen=True, eq=False)
class Part:
    """Contiguous steps of a network.

    Attributes:
        steps: the steps.
        first: number of the first step in the network.
        reads: numbers of the values that it, or a later part, takes from before.
        gives: numbers of the values that later parts take; the result for the last part.
        values: shape and range of every value of the network.
    """

    steps: tuple[NetworkStep, ...]
    first: int
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    values: tuple[Integers, ...]

    def compute(self, arrays: Sequence[Array]) -> list[Array]:
        """Compute the part.

        Args:
            arrays: the values of :attr:`reads`, each of shape ``(items, *shape)``.

        Returns:
            The values of :attr:`gives`.
        """
        there = dict(zip(self.reads, arrays, strict=True))
        for at, (step, kernel, done) in enumerate(self._kernels):
            there[self.first + at + 1] = kernel(*(there[i] for i in step.inputs))
            for number in done:
                del there[number]
        return [there[number] for number in self.gives]

    def digest(self) -> int:
        """CRC-32 of the numbers in memory that :meth:`compute` reads beside its operands."""
        return array_digest(a for _, kernel, _ in self._kernels for a in arrays_of(kernel))

    def __getstate__(self) -> dict[str, Any]:
        """What a copy in another process is made of: not the functions, which it makes again."""
        return {key: value for key, value in self.__dict__.items() if key != "_kernels"}

    @cached_property
    def _kernels(self) -> list[tuple[NetworkStep, Any, list[int]]]:
        """Each step with its function and the values that nobody reads after it."""
        last = {i: at for at, step in enumerate(self.steps) for i in step.inputs}
        done: list[list[int]] = [[] for _ in self.steps]
        for number, at in last.items():
            if number not in self.gives:
                done[at].append(number)
        return [
            (step, step.operation.kernel(*(self.values[i] for i in step.inputs)), gone)
            for step, gone in zip(self.steps, done, strict=True)
        ]


class IntegerNetwork:
    """A network whose every value is an integer of at most 32 bits.

    Args:
        given: shape and range of the input.
        steps: the operations; the last gives the scores.
        input_bits: binary places of the input: an integer ``n`` stands for ``n / 2^input_bits``.
        score_bits: binary places of the scores.

    Attributes:
        values: shape and range of every value: the input, then the result of each step.

    Raises:
        ClusterError: a shape does not fit, a value may exceed 32 bits, or a step reads a value that
            is not there yet; the error names the step.
    """

    def __init__(
        self,
        given: Integers,
        steps: Sequence[NetworkStep],
        *,
        input_bits: int = 0,
        score_bits: int = 0,
    ) -> None:
        if not steps:
            raise ClusterError("expected a network of at least one operation")
        self.input_bits, self.score_bits = input_bits, score_bits
        self.steps = tuple(steps)
        values = [given]
        for step in steps:
            if not all(0 <= i < len(values) for i in step.inputs):
                raise ClusterError(f"{step.name}: reads values {step.inputs} of {len(values)}")
            try:
                values.append(step.operation.output(*(values[i] for i in step.inputs)))
            except ClusterError as error:
                raise ClusterError(f"{step.name}: {error}") from error
        self.values = tuple(values)

    def part(self, start: int, end: int) -> Part:
        """Return the steps from ``start`` to before ``end``."""
        return Part(self.steps[start:end], start, self.alive(start), self.alive(end), self.values)

    def alive(self, at: int) -> tuple[int, ...]:
        """Numbers of the values that exist before step ``at`` and that it or a later one takes."""
        taken = {i for step in self.steps[at:] for i in step.inputs}
        return tuple(sorted(i for i in taken | {len(self.steps)} if i <= at))

    @cached_property
    def whole(self) -> Part:
        """All steps."""
        return self.part(0, len(self.steps))

    def encode(self, items: ArrayLike) -> NDArray[Any]:
        """Round real inputs to the network's integers, ties to even, within their range.

        Args:
            items: numbers of shape ``(items, *shape)``.
        """
        given = self.values[0]
        real = np.ldexp(np.asarray(items, dtype=np.float64), self.input_bits)
        if real.shape[1:] != given.shape:
            raise ModelError(f"expected items of shape {given.shape}, got {real.shape[1:]}")
        if np.isnan(real).any():
            raise ModelError("expected numbers as input, got NaN")
        return np.clip(np.rint(real), given.low, given.high).astype(given.dtype)

    def scores(self, items: ArrayLike) -> NDArray[np.int32]:
        """Compute integer inputs.

        Args:
            items: integers of shape ``(items, *shape)`` within the range of the input.

        Returns:
            int32 array of shape ``(items, *shape of the scores)``.

        Raises:
            ModelError: the inputs are no integers, or have another shape or range.
        """
        (out,) = self.whole.compute([checked_items(self, items)])
        return out.astype(np.int32)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the input, the operations and their numbers."""
        whole = hashlib.sha256(repr((self.values[0], self.input_bits, self.score_bits)).encode())
        for step in self.steps:
            whole.update(repr((type(step.operation).__name__, step.inputs)).encode())
            for field in fields(step.operation):  # type: ignore[arg-type]  # all are dataclasses
                value = getattr(step.operation, field.name)
                if isinstance(value, np.ndarray):
                    whole.update(f"{field.name} {value.shape}".encode())
                    whole.update(np.ascontiguousarray(value, dtype="<i8").tobytes())
                else:
                    whole.update(f"{field.name} {value}".encode())
        return whole.hexdigest()


def checked_items(network: IntegerNetwork, items: ArrayLike) -> NDArray[Any]:
    """Check that items are inputs of a network.

    Raises:
        ModelError: the inputs are no integers, or have another shape or range.
    """
    array, given = np.asarray(items), network.values[0]
    if array.dtype.kind not in "iub" or array.shape[1:] != given.shape:
        raise ModelError(
            f"expected integers of shape (items, {str(given.shape)[1:-1]}), got {array.dtype} "
            f"{array.shape}: IntegerNetwork.encode rounds real numbers"
        )
    if array.size and not given.low <= int(array.min()) <= int(array.max()) <= given.high:
        raise ModelError(
            f"expected inputs of {given.low} to {given.high}, got {array.min()} to {array.max()}"
        )
    return array.astype(given.dtype, copy=False)
