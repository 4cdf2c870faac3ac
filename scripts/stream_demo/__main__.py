# SPDX-License-Identifier: Apache-2.0
"""Watch a network that learns in the kernel.

    sudo python -m scripts.stream_demo [--flows N] [--seed N] [--json]

Run it in the root folder of the repository. It needs ``iproute2 clang libbpf-dev`` and
``pip install 'n3ic[train,stream]'``. It sends packets to XDP in a network namespace of its own:
look-up tables in the kernel decide most flows, boosted trees those that are shunted. Half way the
attacks change; late labels refresh the model, which is swapped in. A line shows each sixteenth of
the flows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from n3ic.errors import N3icError
from n3ic.util.markdown import percent
from scripts.stream_demo.loop import LoopFigures, LoopWindow, run_loop

_HEAD = ("flows", "traffic", "shunted", "card", "rest", "all", "labels", "kernel", "swaps")
_FEWEST = 2400


def _line(cells: tuple[str, ...]) -> str:
    return " ".join(f"{cell:>8}" for cell in cells)


def _row(window: LoopWindow) -> tuple[str, ...]:
    shares = (window.shunted, window.card, window.rest, window.both)
    return (
        f"{window.flows:,}",
        "new" if window.changed else "old",
        *(percent(share, 0) for share in shares),
        f"{window.labelled:,}",
        window.kernel[:6],
        str(window.pushes),
    )


def main(words: list[str] | None = None) -> int:
    """Run the loop; print the windows as they end, and a summary. Return the exit code."""
    parser = argparse.ArgumentParser(description="A network that learns in the kernel; needs root.")
    parser.add_argument("--flows", type=int, default=12_000, help="the traffic changes half way")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    if options.flows < _FEWEST:
        parser.error(f"--flows: expected {_FEWEST:,} or more, got {options.flows:,}")
    if os.geteuid():
        parser.exit(4, "needs root, for a network namespace: sudo python -m scripts.stream_demo\n")
    shown = 0

    def show(figures: LoopFigures) -> None:
        nonlocal shown
        for window in figures.windows[shown:]:
            print(_line(_row(window)), flush=True)
        shown = len(figures.windows)

    if not options.json:
        print("right by the card, by the second stage of the rest, of all")
        print(_line(_HEAD), flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="n3ic-demo-") as folder:
            loop = run_loop(
                Path(folder),
                options.flows,
                options.seed,
                (lambda _: None) if options.json else show,
            )
    except N3icError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    if options.json:
        print(json.dumps(loop.to_dict()))
        return 0
    shares = (f"{name} {percent(window.both)}" for name, window in loop.summary().items())
    print(f"flows decided right: {', '.join(shares)}")
    print(
        f"{loop.refreshed} models trained, {loop.windows[-1].pushes} swapped in, {loop.failed} "
        f"swaps failed; {loop.total - loop.flows:,} flows lost on the link, {loop.lost:,} in the "
        f"ring buffer; {loop.unlike:,} with other scores than their model's; {loop.seconds:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
