# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream SOURCE``.

This module must import quickly: a command imports what it needs when it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    source: Annotated[
        str,
        typer.Argument(
            help="A capture, - for standard input, a network interface, af_xdp:INTERFACE, "
            "dpdk:DEVICE, shunted:SOCKET, xdp:INTERFACE, udp:ADDRESS:PORT or "
            "kafka://HOST:PORT/TOPIC."
        ),
    ],
    model: Annotated[
        Path | None, typer.Option(help="Model file or run; default: the newest run.")
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            help="Where decided flows go (repeatable): FILE.jsonl, FILE.parquet, - for standard "
            "output, ipfix://HOST:PORT, kafka://HOST:PORT/TOPIC, nats://HOST:PORT/SUBJECT.",
            show_default="-",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder of the stream's state, from which the same command resumes."),
    ] = None,
    commit: Annotated[
        float, typer.Option(help="Seconds between two states.", min=0.0, max=3600.0)
    ] = 5.0,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Go on with a new model whenever the model's file is replaced, such as by "
            "n3ic stream learn --push file:MODEL.",
        ),
    ] = False,
    features: Annotated[
        bool, typer.Option("--features", help="Write the model's features as well.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace existing files of the sinks.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after this many seconds.", min=0.0)
    ] = None,
    metrics: Annotated[
        str, typer.Option(help="Address to serve figures for Prometheus on: 127.0.0.1:9109.")
    ] = "",
    json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON on standard output.")
    ] = False,
) -> None:
    """Meter packets, decide flows and write them to sinks, until the source ends or Ctrl-C."""
    from n3ic.cli.console import print_json, print_note
    from n3ic.errors import UsageError
    from n3ic.meter.records import left_out
    from n3ic.runs.folder import models_of, open_models
    from n3ic.systems.stream.flows.pipeline import StreamSettings
    from n3ic.systems.stream.flows.run import run_stream
    from n3ic.systems.stream.flows.sink import STANDARD_OUTPUT
    from n3ic.systems.stream.flows.terminal import lines, live_view

    places = sink or [STANDARD_OUTPUT]
    if json and STANDARD_OUTPUT in places:
        raise UsageError("--json and the flows share standard output: name a file with --sink")
    path, models, _ = open_models(model)
    if len(models) > 1:
        raise UsageError(f"{path} holds {len(models)} models; name one with --model")
    followed = next(iter(models_of(path).values())) if follow else None
    with live_view(not json and STANDARD_OUTPUT not in places) as watch:
        figures = run_stream(
            source,
            next(iter(models.values())),
            places,
            StreamSettings(state, commit, replace, seconds, followed),
            features=features,
            metrics=metrics,
            watch=watch,
        )
    if json:
        print_json(figures.to_dict())
        return
    for line in (*lines(figures), *left_out(figures.meter)):
        print_note(line)
