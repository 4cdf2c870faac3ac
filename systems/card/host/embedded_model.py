# SPDX-License-Identifier: Apache-2.0
"""Networks that are compiled into a card: those whose numbers the kernel does not load.

The host target writes each as a C file with the calls of ``bnn.h``. On a card, every file's calls
get names of their own, and ``bnn.c`` passes the card's calls on to the network that they are for.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from n3ic.errors import CardError
from n3ic.exporters.host.graph.program import program
from n3ic.exporters.host.sources import kernel_source
from n3ic.kernel import blob, build
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.network import BinaryModel
from n3ic.targets.base import Exporter, exporter
from n3ic.util.templates import render

TEMPLATES = Path(__file__).resolve().parent / "templates"
WEIGHTS = "network_weights.c"
CYCLES_A_STEP = 20
"""Cycles of one step for a row alone, about: steps of trees, sums and look-ups took 6 to 8 ns."""
_CALL = re.compile(r"\b(bnn_\w+)\(")


def is_compiled_in(model: Classifier) -> bool:
    """Whether a network is compiled into the card; otherwise its weights are loaded."""
    return not isinstance(model, BinaryModel)


def weights_of(model: Classifier) -> bytes:
    """What the card loads for a network: its weights, or the digest of one that is compiled in."""
    if isinstance(model, BinaryModel):
        return blob.dump(model)
    return model.digest.encode("ascii")


def sources(models: Sequence[Classifier]) -> dict[str, str]:
    """The C that computes networks, by file name: the kernel alone if all are loaded.

    Args:
        models: the networks of a card; equal ones are compiled once.

    Raises:
        CardError: a network exceeds a limit of the host target.
    """
    embedded = {model.digest: model for model in models if is_compiled_in(model)}
    if not embedded:
        return {"bnn.c": kernel_source()}
    files = {f"network_{i:02d}.c": _own_source(m) for i, m in enumerate(embedded.values())}
    loads = len(embedded) < len({model.digest for model in models})
    values = {
        "networks": [
            {"stem": Path(name).stem, "digest": digest}
            for name, digest in zip(files, embedded, strict=True)
        ],
        "loads": loads,
    }
    if loads:
        files[WEIGHTS] = kernel_source()
    out = {
        "bnn.c": render(TEMPLATES, "networks.c.j2", values),
        "network_calls.h": (TEMPLATES / "network_calls.h").read_text("utf-8"),
    }
    return out | {name: _renamed(Path(name).stem, text) for name, text in files.items()}


def steps_of(model: Classifier) -> int:
    """The steps of one row in the C: look-ups, operations, and the levels of trees."""
    figures = {f.name: f.value for f in _tool(model).report(model, {}, Path()).figures}
    if "lookups" in figures:
        return int(figures["lookups"])
    compiled = program(graph_of(model))
    return len(compiled.steps) + sum(tree.depth for tree in compiled.trees)


def bytes_of(model: Classifier) -> int:
    """Bytes of the constants in the C; a card meters no packets."""
    tool = _tool(model)
    return sum(placed.bytes for placed in tool.check(model, tool.parse_options({})).placements)


def _tool(model: Classifier) -> Exporter[Any]:
    return exporter("host").for_family(model.family)


def _own_source(model: Classifier) -> str:
    """The ``bnn.c`` that the host target writes.

    Raises:
        CardError: the network exceeds a limit of the target.
    """
    tool = _tool(model)
    options = tool.parse_options({})
    if problems := tool.check(model, options).problems:
        raise CardError(f"{model.name}: {'; '.join(map(str, problems))}")
    with tempfile.TemporaryDirectory(prefix="n3ic-card-") as folder:
        tool.write(model, options, Path(folder))
        return (Path(folder) / "bnn.c").read_text("utf-8")


def _renamed(stem: str, text: str) -> str:
    """A network's C whose calls carry its name, and the table of those that a card makes."""
    calls = sorted({*_CALL.findall(build.HEADER.read_text("utf-8"))})
    values: Mapping[str, Any] = {
        "stem": stem,
        "calls": calls,
        "code": text,
        "loads": f"{stem}.c" == WEIGHTS,
    }
    return render(TEMPLATES, "network.c.j2", values)
