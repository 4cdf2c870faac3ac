# SPDX-License-Identifier: Apache-2.0
"""The nearest shape that a target accepts, for the text of a refusal."""

from __future__ import annotations

from collections.abc import Callable

from n3ic.model.network import shape_text

Shape = tuple[int, ...]
_STEPS = 256  # number of tried factors


def nearest_shape(shape: Shape, fits: Callable[[Shape], bool], *, widest: int | None = None) -> str:
    """The widest shape in the same proportions that fits, with the same classes.

    Hidden layers shrink first, all by the same factor; input bits shrink only if one neuron per
    layer is too many.

    Args:
        shape: input bits, then the neurons of each layer.
        fits: whether a shape fits; it must be monotone in every width.
        widest: largest number of input bits or of neurons in a layer; None for no limit.

    Returns:
        The shape as text; empty if no shape fits.
    """
    body = [n if widest is None else min(n, widest) for n in shape[:-1]]
    inputs, hidden, classes = body[0], body[1:], shape[-1]
    for step in range(_STEPS, 0, -1):
        near = (inputs, *(max(1, n * step // _STEPS) for n in hidden), classes)
        if fits(near):
            return shape_text(near)
    for step in range(_STEPS, 0, -1):
        near = (max(1, inputs * step // _STEPS), *(1 for _ in hidden), classes)
        if fits(near):
            return shape_text(near)
    return ""
