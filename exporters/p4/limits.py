"""The nearest shape that satisfies a target's limits."""

from __future__ import annotations

from collections.abc import Callable

Shape = tuple[int, ...]


def shape_text(shape: Shape) -> str:
    """A shape as people write it: ``256-32-16-2``."""
    return "-".join(str(n) for n in shape)


def nearest_shape(shape: Shape, widest: int, fits: Callable[[Shape], bool]) -> str:
    """The shape nearest to ``shape`` that fits: layers clipped, then the largest halved.

    Args:
        shape: input bits, then the neurons of each layer; the classes stay as they are.
        widest: most input bits or neurons of a layer.
        fits: whether a shape satisfies all other limits.

    Returns:
        The shape in words, or an empty text where none is found.
    """
    *body, classes = (min(n, widest) for n in shape[:-1]), shape[-1]
    layers = list(body[0])
    while not fits((*layers, classes)):
        largest = max(range(len(layers)), key=lambda i: layers[i])
        if layers[largest] <= 1:
            return ""
        layers[largest] = -(-layers[largest] // 2)
    return shape_text((*layers, classes))
