# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream demo``.

This module must import quickly: the command imports what it needs when it runs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer


class DemoHalf(StrEnum):
    """What is shown."""

    LOOP = "loop"
    IMAGES = "images"
    ALL = "all"


def demo(
    what: Annotated[DemoHalf, typer.Argument(help="loop, images or all.")] = DemoHalf.ALL,
    flows: Annotated[
        int, typer.Option(help="Flows; the traffic changes after half of them.", min=2400)
    ] = 12_000,
    images: Annotated[int, typer.Option(help="Images by each way.", min=1)] = 5,
    model: Annotated[
        str, typer.Option(help="Model of the images: vgg11, tiny-yolo, flow-mlp or binary.")
    ] = "tiny-yolo",
    seed: Annotated[int, typer.Option(help="Seed of traffic, training and images.", min=0)] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Watch a network that learns in the kernel, and images that reach PyTorch; needs root.

    Loop: packets to XDP in a network namespace, shunted flows, second stage, late labels, and a
    refreshed model swapped in after the traffic changed. Images: over UDP to DPDK's functions and
    PyTorch, by the three ways.
    """
    import tempfile
    from pathlib import Path

    from n3ic.cli.console import print_json, print_note, print_result, show_table
    from n3ic.errors import MissingDependencyError
    from n3ic.systems.stream.demo.needs import missing_for_images, missing_for_loop

    checks = {DemoHalf.LOOP: missing_for_loop, DemoHalf.IMAGES: missing_for_images}
    skipped = {h: found for h, check in checks.items() if what in (h, "all") if (found := check())}
    shown = [half for half in checks if what in (half, "all") and half not in skipped]
    for half, found in skipped.items():
        print_note(f"without the {half}: {'; '.join(found)}")
    if not shown:
        raise MissingDependencyError("nothing can be shown here: see above")
    out: dict[str, Any] = {"skipped": skipped}
    with tempfile.TemporaryDirectory(prefix="n3ic-demo-") as name:
        folder = Path(name)
        if DemoHalf.LOOP in shown:
            from n3ic.systems.stream.demo.loop import run_loop
            from n3ic.systems.stream.demo.terminal import loop_lines, loop_table, watched

            with watched(json) as (show, line):
                line("training the card's model, compiling the program")
                loop = run_loop(folder, flows, seed, show)
            out["loop"] = loop.to_dict()
            if not json:
                show_table(loop_table(loop))
                for text in loop_lines(loop):
                    print_result(text)
        if DemoHalf.IMAGES in shown:
            from n3ic.systems.stream.demo.images import image_tables, run_images
            from n3ic.systems.stream.demo.terminal import image_line, watched

            with watched(json) as (_, line):
                line(f"{model}: functions load it and attach")
                pictures = run_images(folder, model, images, seed, lambda f: line(image_line(f)))
            out["images"] = pictures.to_dict()
            if not json:
                for table in image_tables(pictures):
                    show_table(table)
                print_result(f"{pictures.device}; {pictures.load}")
    if json:
        print_json(out)
