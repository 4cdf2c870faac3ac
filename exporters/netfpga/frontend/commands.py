# SPDX-License-Identifier: Apache-2.0
"""The command ``n3ic ask``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from n3ic.cli.console import print_json, print_result, spinner
from n3ic.errors import UsageError

if TYPE_CHECKING:
    from n3ic.model.classifier import Classifier


def ask(
    address: Annotated[str, typer.Argument(help="HOST or HOST:PORT of a card.")],
    flows: Annotated[Path, typer.Argument(help="A table of flows.")],
    model: Annotated[
        Path, typer.Option(help="The card's export directory, its model file, or its run.")
    ],
    tcp: Annotated[bool, typer.Option("--tcp", help="Use TCP instead of UDP.")] = False,
    batch: Annotated[
        int, typer.Option(help="Rows per request; 0: as many as fit a datagram.", min=0)
    ] = 0,
    window: Annotated[int, typer.Option(help="Requests in flight.", min=1, max=4096)] = 8,
    timeout: Annotated[
        float, typer.Option(help="Seconds until a datagram is sent again.", min=0.001)
    ] = 1.0,
    tries: Annotated[int, typer.Option(help="Maximum datagrams per request.", min=1)] = 5,
    input_stage: Annotated[
        Literal["bits", "features"], typer.Option(help="Content of the card's rows.")
    ] = "bits",
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Send rows to a card over the network; a result that differs from the model's is an error."""
    import numpy as np

    from n3ic.data.flows import read_features
    from n3ic.exporters.netfpga.frontend.client import ClientOptions, parse_address
    from n3ic.exporters.netfpga.frontend.client import query_card as ask_card

    where = parse_address(address)
    models = _candidates(model)
    widest = max(models, key=lambda m: len(m.input.features))
    features = read_features(flows, widest, None)
    manner = ClientOptions(tcp=tcp, batch=batch, window=window, timeout=timeout, tries=tries)
    with spinner(f"asking {where[0]}"):
        answers = ask_card(where, models, features, manner, input_stage)
    names, counts = np.unique(answers.verdicts, return_counts=True)
    verdicts = {
        answers.model.verdict_names[int(n)]: int(c) for n, c in zip(names, counts, strict=True)
    }
    rows = len(answers.verdicts)
    median, worst = (float(np.quantile(answers.latencies, q)) for q in (0.5, 0.99))
    if json:
        print_json(
            {
                "rows": rows,
                "requests": answers.requests,
                "resent": answers.resent,
                "seconds": answers.seconds,
                "rows_per_second": rows / answers.seconds,
                "latency_median_seconds": median,
                "latency_p99_seconds": worst,
                "compared": "scores" if answers.full else "verdicts",
                "model": answers.model.digest,
                "transport": "tcp" if tcp else "udp",
                "verdicts": verdicts,
            }
        )
        return
    what = "verdict, class, margin and scores" if answers.full else "verdict"
    print_result(f"{rows:,} rows answered, each with the model's {what}")
    print_result("verdicts: " + ", ".join(f"{name} {count:,}" for name, count in verdicts.items()))
    print_result(
        f"{answers.requests:,} requests over {'TCP' if tcp else 'UDP'}, "
        f"{answers.resent} sent again; "
        f"{rows / answers.seconds:,.0f} rows/s; latency {1e3 * median:.3g} ms, "
        f"99 % within {1e3 * worst:.3g} ms"
    )


def _candidates(path: Path) -> tuple[Classifier, ...]:
    """Load the networks that a card may compute for a path.

    An export directory holds one network. A model file or a run stands for two: the model itself,
    and the model without the parts that do not affect its scores.
    """
    from n3ic.model.layered import in_layers
    from n3ic.model.load import load_model
    from n3ic.model.passes import simplify
    from n3ic.runs.folder import models_of
    from n3ic.targets.manifest import MANIFEST, exported_network, read_manifest

    if (path / MANIFEST).exists():
        return (exported_network(path, read_manifest(path)).model,)
    candidates = models_of(path)
    if len(candidates) != 1:
        raise UsageError(f"{path} holds {len(candidates)} networks: name one model file")
    model = in_layers(load_model(next(iter(candidates.values()))))
    small = simplify(model).model
    return (small,) if small == model else (small, model)
