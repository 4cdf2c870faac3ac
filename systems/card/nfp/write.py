# SPDX-License-Identifier: Apache-2.0
"""Write the micro-C of a card."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.exporters import nfp
from n3ic.exporters.nfp import blob
from n3ic.systems.card.nfp.image import Island, NfpCardImage
from n3ic.targets.identifiers import comment
from n3ic.util.templates import render

TEMPLATES = Path(__file__).resolve().parent / "templates"
_MICRO_C = Path(nfp.__file__).resolve().parent / "micro_c"
_SHARED = (
    "n3ic_data.h",
    "n3ic_input.h",
    "n3ic_neuron.h",
    "n3ic_port.h",
    "n3ic_serve.h",
    "host/nfp_shim.h",
)
_OWN = ("n3ic_card.c", "n3ic_card_join.h", "n3ic_card_rate.h")
_HOST = ("n3ic_card_host.c", "n3ic_card_join_host.c", "n3ic_card_rate_host.c")
_RENDERED = ("n3ic_card_config.h", "n3ic_card_weights.h", "n3ic_card_graphs.h")
_NOBODY = "N3IC_NOBODY"


def write_card(image: NfpCardImage, modelled: str, out: Path) -> None:
    """Write micro-C, weights of each island, programs that run them on a host, and the README.

    Args:
        image: the card.
        modelled: note on the micro-C's syntax.
        out: an empty directory.
    """
    (out / "host").mkdir()
    for name in _SHARED:
        shutil.copyfile(_MICRO_C / name, out / name)
    for name in _OWN:
        shutil.copyfile(TEMPLATES / name, out / name)
    for name in _HOST:
        shutil.copyfile(TEMPLATES / name, out / "host" / name)
    values = _values(image, modelled)
    for name in (*_RENDERED, "Makefile", "README.md"):
        (out / name).write_text(render(TEMPLATES, f"{name}.j2", values), encoding="ascii")


def _values(image: NfpCardImage, modelled: str) -> dict[str, Any]:
    islands = [_island(image, island) for island in image.islands]
    return {
        "title": comment(image.card.name),
        "modelled": modelled,
        "tenants": len(image.card.tenants),
        "slots": image.contexts * image.all_islands,
        "contexts": image.contexts,
        "max_words": image.max_words,
        "ask_words": image.ask_words,
        "classes": image.classes,
        "features": max(1, *(len(m.input.features) for m in image.models)),
        "hidden_words": image.hidden_words,
        "branches": image.branches,
        "islands": islands,
        "tick_ns": 1e9 / image.tick_hz,
        "rates": [
            {
                "name": comment(tenant.name),
                "rate": tenant.rate,
                "burst": tenant.burst,
                "step": bucket.step,
                "full": bucket.full,
            }
            for tenant, bucket in zip(image.card.tenants, image.buckets, strict=True)
        ],
        "graphs": [
            {
                "name": comment(graph.name),
                "uid": graph.uid,
                "join": graph.join if len(graph.branches) > 1 else "",
                "join_name": f"N3IC_JOIN_{graph.join.replace('-', '_').upper()}",
                "tenant": graph.tenant,
                "models": [f"0x{b.model.digest[:8]}" for b in graph.branches],
                "networks": "; ".join(
                    f"{comment(b.task)} in slots "
                    + ", ".join(
                        n["slots"] for i in islands for n in i["networks"] if n["task"] == b.task
                    )
                    for b in graph.branches
                ),
            }
            for graph in image.card.graphs
        ],
    }


def _island(image: NfpCardImage, island: Island) -> dict[str, Any]:
    blobs = [blob.build(image.card.networks[name]).words for name in island.networks]
    # Networks follow each other in one array; starts and places are where each begins.
    starts = np.cumsum([0, *(len(b) for b in blobs)]).tolist()
    places = np.cumsum([0, *island.threads]).tolist()
    first = island.index * image.contexts
    serves = [str(n) for n in island.serves()]
    serves += [_NOBODY] * (image.contexts - len(serves))
    words = np.concatenate(blobs)
    return {
        "index": island.index,
        "starts": starts[:-1],
        "words": len(words),
        "serves": _lines(serves, 16),
        "body": _lines([f"0x{word:08x}" for word in words.tolist()], 8),
        "networks": [
            {
                "task": name,
                "name": comment(name),
                "shape": image.card.networks[name].shape_text,
                "digest": image.card.networks[name].digest,
                "bytes": 4 * len(words_of),
                "threads": threads,
                "slots": f"{first + place}-{first + place + threads - 1}",
            }
            for name, words_of, threads, place in zip(
                island.networks, blobs, island.threads, places[:-1], strict=True
            )
        ],
    }


def _lines(items: list[str], each: int) -> str:
    rows = (items[i : i + each] for i in range(0, len(items), each))
    return ",\n".join("    " + ", ".join(row) for row in rows)
