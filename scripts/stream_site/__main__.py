# SPDX-License-Identifier: Apache-2.0
"""Compare load and capacity of every stage behind the cards of a site, and simulate their queues.

    python -m scripts.stream_site
    python -m scripts.stream_site --simulate --surge 20,0.5,0.5,0.5
    python -m scripts.stream_site --simulate --down "topic: partition=0.5,0.5"
    python -m scripts.stream_site --measure   # what one core of this machine handles

Run it in the root folder of the repository. ``site.toml`` beside it has a thousand cards;
``--site FILE`` reads another site.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from os import getloadavg
from pathlib import Path
from typing import Annotated

import typer

from n3ic.cli.console import (
    print_json,
    print_result,
    progress_bar,
    spinner,
    table,
)
from n3ic.errors import N3icError, UsageError
from scripts.stream_site.arithmetic import StageLoad, bottleneck, loads
from scripts.stream_site.description import DEFAULT, Site, read_site
from scripts.stream_site.measurement import measure as measure_core
from scripts.stream_site.simulation import Outage, SiteRun, Surge
from scripts.stream_site.simulation import simulate as simulate_site


def site(
    description: Annotated[
        Path | None,
        typer.Option("--site", help="Traffic and stages (TOML); default: a thousand cards."),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate the queues that shunted flows pass.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Seconds to simulate.", min=0.001)] = 2.0,
    batch: Annotated[int, typer.Option(help="Flows of a batch.", min=1)] = 100,
    surge: Annotated[
        str,
        typer.Option(
            help="Cards that shunt more: FACTOR,SHARE,START,SECONDS, such as 20,0.1,0.5,0.5."
        ),
    ] = "",
    down: Annotated[
        list[str] | None,
        typer.Option(help="A server that stops for a while: STAGE=START,SECONDS."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the arrivals.", min=0)] = 0,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure what one core of this machine handles.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show load and capacity behind the cards of a site, and simulate its queues."""
    if measure:
        if simulate or description:
            raise UsageError("--measure: expected without --site and --simulate")
        _measure(json)
        return
    described = read_site(description or DEFAULT)
    stages = loads(described)
    run = None
    if simulate:
        surging = _surge(surge)
        run = _simulated(described, seconds, batch, surging, tuple(map(_outage, down or ())), seed)
    elif surge or down:
        raise UsageError("--surge, --down: expected with --simulate")
    busiest = bottleneck(stages)
    if json:
        print_json(
            {
                "traffic": asdict(described.traffic),
                "stages": [asdict(one) for one in stages],
                "bottleneck": busiest.stage.name,
                "simulated": run and asdict(run),
            }
        )
        return
    _show(stages)
    print_result(
        f"bottleneck: {busiest.stage.name}, {busiest.utilisation:.0%} busy in the busiest hour"
    )
    if run:
        _show_run(run)


def _measure(json: bool) -> None:
    with spinner("measuring") as show_step:
        rates = measure_core(show_step)
    if json:
        print_json({"kind": "measured", "load": getloadavg()[0], "rates": rates})
        return
    rows = [(name, f"{rate:,.0f}") for name, rate in rates.items()]
    table("one core, measured by processor time", ("what", "per second"), rows)
    print_result(f"load average: {getloadavg()[0]:.1f}")


def _simulated(
    described: Site, seconds: float, batch: int, surge: Surge, down: tuple[Outage, ...], seed: int
) -> SiteRun:
    with progress_bar("simulating") as bar:
        return simulate_site(
            described,
            seconds=seconds,
            batch=batch,
            surge=surge,
            outages=down,
            seed=seed,
            progress=lambda share: bar(share, ""),
        )


def _surge(text: str) -> Surge:
    if not text:
        return Surge()
    factor, share, start, seconds = _numbers("--surge", text, 4)
    if factor < 1 or not 0 <= share <= 1:
        raise UsageError(
            f"--surge: expected a factor of 1 or more and a share from 0 to 1, got {text!r:.80}"
        )
    return Surge(factor, share, start, seconds)


def _outage(text: str) -> Outage:
    stage, equals, times = text.rpartition("=")
    if not equals:
        raise UsageError(f"--down: expected STAGE=START,SECONDS, got {text!r:.80}")
    return Outage(stage, *_numbers("--down", times, 2))


def _numbers(option: str, text: str, count: int) -> list[float]:
    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != count or not all(0 <= number < 1e9 for number in numbers):
        raise UsageError(f"{option}: expected {count} numbers of 0 or more, got {text!r:.80}")
    return numbers


def _show(stages: tuple[StageLoad, ...]) -> None:
    rows = [
        (
            one.stage.name,
            f"{one.load:,.0f} {one.stage.takes}",
            f"{one.stage.capacity:,.0f}",
            f"{one.stage.servers:,}",
            f"{one.utilisation:.1%}",
            f"{one.needed:,}",
            one.stage.kind,
        )
        for one in stages
    ]
    head = ("stage", "per second", "a server", "servers", "busy", "for 70 %", "capacity")
    table("busiest hour", head, rows)


def _show_run(run: SiteRun) -> None:
    rows = [
        (
            one.name,
            f"{one.arrived:,}",
            f"{one.lost:,}",
            f"{one.longest:,}",
            *(f"{1000 * s:,.2f}" for s in one.wait),
        )
        for one in run.stages
    ]
    head = ("stage", "flows", "lost", "longest queue", "mean ms", "median ms", "99 % ms", "most ms")
    table(f"{run.seconds:g} s, simulated", head, rows)
    _, median, late, most = (1000 * s for s in run.latency)
    print_result(
        f"{run.done:,} of {run.sent:,} flows passed every stage, in {median:,.2f} ms "
        f"(99 %: {late:,.2f}, most {most:,.2f})"
    )


def main() -> None:
    """Run the command line; a mistake ends it with one line."""
    try:
        typer.run(site)
    except N3icError as error:
        sys.exit(f"stream_site: {error}")


if __name__ == "__main__":
    main()
