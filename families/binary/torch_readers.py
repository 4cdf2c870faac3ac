# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch that read a module's scores: a softmax, a sigmoid, the index of the highest.

A BinaryModel ends with its scores, so what follows them is left out. That is right only where it
keeps the class: every operator is checked for that, and so is every result.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from n3ic.families.binary.torch_tensor import Call, TableTensor, mapped

# fmt: off
READERS = frozenset((
    "_log_softmax", "_softmax", "argmax", "log_sigmoid_forward", "log_softmax", "max", "sigmoid",
    "softmax", "topk",
))
SHAPING = frozenset((
    "_unsafe_view", "alias", "detach", "expand", "flatten", "reshape", "select", "slice",
    "squeeze", "unsqueeze", "view",
))
# fmt: on
_SIGMOIDS = frozenset(("log_sigmoid_forward", "sigmoid"))
_COMPARISONS = frozenset(("ge", "gt", "le", "lt", "round"))  # of one probability
_COPIES = frozenset(("_to_copy", "clone"))
_CLASSES_AT = {"topk": 2, "max": 1, "argmax": 1, "softmax": 1, "log_softmax": 1}  # argument "dim"


def read_scores(call: Call) -> Any:
    """Return the result of the first reader; its argument is taken as the module's scores.

    A sigmoid of several channels may be an activation, and counts as one until something reads it.
    """
    x = call.tensors[0]
    _check_classes(call, x)
    if call.name in _SIGMOIDS and x.signal.channels > 1:
        return call.elementwise()
    if call.reading.scores is not None:
        raise call.error("the scores are read twice; return them alone")
    call.reading.scores = x.signal
    if call.name == "sigmoid":  # of one score: what it is compared with decides the class
        result = call.elementwise()
        return TableTensor(result.signal, x.shape, call.reading, result.dtype)
    return after_scores(call)


def after_scores(call: Call) -> Any:
    """Return the result of an operator after a reader; it may not change the highest class."""
    x, *operands = call.tensors
    own = x.signal is not call.reading.scores  # one sigmoid, which has its own table
    if own and call.name in _COMPARISONS:
        call.reading.scores = None  # the comparison decides, so its result is the score
        return call.elementwise()
    rises = not own and (call.name == "exp" or (call.name == "mul" and _scales_all_alike(call)))
    if operands or not (rises or call.name in _COPIES | READERS | SHAPING):
        raise call.error(
            "works on the result of a softmax, a sigmoid or a maximum; the scores are the "
            "last that a module may compute with, except that one sigmoid may be compared"
        )
    if call.name in READERS:
        _check_classes(call, x)
    # Zeros give the result's shape and type, which are all that the rest of the module needs.
    args, kwargs = mapped(
        (call.args, call.kwargs),
        lambda t: torch.zeros(t.shape, dtype=t.dtype) if isinstance(t, TableTensor) else t,
    )
    result = call.func(*args, **kwargs)
    signal = call.elementwise().signal if own and call.name == "_to_copy" else x.signal
    return mapped(
        result,
        lambda t: TableTensor(signal, t.shape, call.reading, t.dtype, _tells(call, x, t)),
    )


def _scales_all_alike(call: Call) -> bool:
    """Whether a product has one positive factor for all classes, which keeps their order."""
    factors = [a for a in call.args if not isinstance(a, TableTensor)]
    return all(torch.as_tensor(f).numel() == 1 and bool(f > 0) for f in factors)


def _tells(call: Call, x: TableTensor, result: Tensor) -> bool:
    """Whether a result tells the class, as the argument ``x`` does."""
    if not x.tells:
        return False
    numbers_classes = not result.is_floating_point()
    if call.name in ("max", "topk"):
        return numbers_classes  # the indices do, the values do not
    if call.name == "argmax":
        return True
    if result.numel() == x.numel():  # truncated probabilities are all alike
        return not numbers_classes or not x.is_floating_point()
    if not x.is_floating_point():
        return (*call.args[1:3],) in ((1, 0), (-1, 0))  # of the indices of the best, the first
    # Of two classes, the probability of the second alone tells the class.
    second = call.name == "select" and call.args[1:] in ((1, 1), (1, -1), (-1, 1), (-1, -1))
    return second and x.shape[1:] == (2,) and x.signal.channels == 2


def _check_classes(call: Call, x: TableTensor) -> None:
    """Check that a reader compares the classes of one row, and looks for the highest.

    Raises:
        ModelError: the reader does something else.
    """
    name = call.name.removeprefix("_")
    if x.signal.channels == 1 and not x.behind and name not in _SIGMOIDS:
        raise call.error("one score is always the highest; return it alone, or two scores")
    at = _CLASSES_AT.get(name)
    over = call.args[at] if at is not None and len(call.args) > at else -1
    everything = name in ("max", "argmax") and len(call.args) == 1
    if everything or over not in (1, -1) or x.ndim > 2:
        raise call.error("does not compare the classes; give it dim=1")
    if name == "topk" and len(call.args) > 3 and not call.args[3]:
        raise call.error("the smallest score wins; a BinaryModel takes the highest")
