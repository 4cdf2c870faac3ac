# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream demo``.

This module must import quickly: the command imports what it needs when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    flows: Annotated[
        int, typer.Option(help="Flows; the traffic changes after half of them.", min=2400)
    ] = 12_000,
    seed: Annotated[int, typer.Option(help="Seed of traffic and training.", min=0)] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Watch a network that learns in the kernel; needs root.

    Packets to XDP in a network namespace, shunted flows, second stage, late labels, and a
    refreshed model swapped in after the traffic changed.
    """
    import tempfile
    from pathlib import Path

    from n3ic.cli.console import print_json, print_result, show_table
    from n3ic.systems.stream.demo.loop import run_loop
    from n3ic.systems.stream.demo.needs import check_machine
    from n3ic.systems.stream.demo.terminal import loop_lines, loop_table, watched

    check_machine()
    with tempfile.TemporaryDirectory(prefix="n3ic-demo-") as folder, watched(json) as (show, line):
        line("training the card's model, compiling the program")
        loop = run_loop(Path(folder), flows, seed, show)
    if json:
        print_json(loop.to_dict())
        return
    show_table(loop_table(loop))
    for text in loop_lines(loop):
        print_result(text)
