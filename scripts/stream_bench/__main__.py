# SPDX-License-Identifier: Apache-2.0
"""Measure the three ways of messages to a model in one run of ten minutes at most.

    python -m scripts.stream_bench                   # the CPU takes the device's part
    python -m scripts.stream_bench --device cuda     # fills the page's table, or says "not run"

Run it in the root folder of the repository; it needs ``pip install 'n3ic[stream]'``. It prints the
tables of ``docs/how-to/stream-messages.md`` as Markdown, with the figures that the paper states in
words and tables: A. Dhakal and K. K. Ramakrishnan, "NetML: An NFV Platform with Efficient Support
for Machine Learning Applications" (Xeon E5-2698 v4, Tesla P100, DPDK, 10 Gb/s).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial

import numpy as np
import torch

from n3ic.systems.stream.messages.devices import DEVICES, open_device
from n3ic.systems.stream.messages.models import message_model
from n3ic.systems.stream.messages.transfers import TRANSFERS
from n3ic.util.markdown import percent
from scripts.stream_bench.digits import DigitImages
from scripts.stream_bench.loopback import LoopbackSender, loopback_sender
from scripts.stream_bench.measurement import (
    Device,
    WayFigures,
    measure_ways,
    model_inputs,
    train_epoch,
)

NOT_RUN = "not run"
_WAYS = tuple(TRANSFERS)  # copy, gather, pull
_PART = 1024
_SIZE = 500_000
_WINDOW = 1024  # packets between sender and receiver; a socket's buffer holds more
_TRAINED = ("gather", "pull")
_BATCHES = (50, 80, 100)
Cells = tuple[str, ...]
_PAPER: dict[str, Cells] = {
    "transfer": ("> 4", "> 1.37", "0.63"),
    "vgg11": ("8.6 to 12.3", "5.5", "4.3"),
    "tiny-yolo": ("8.1 to 11.3", "5.9", "4.7"),
}
_PAPER_TRAINING = {
    50: ("22,727", "29,585", "95 %"),
    80: ("30,005", "40,113", "93 %"),
    100: ("41,518", "56,497", "92 %"),
}
Of = Callable[[WayFigures], str]
_ROWS: tuple[tuple[str, Of], ...] = (
    ("first packet to all on device, ms", lambda f: f"{f.transfer[0]:.2f} / {f.transfer[1]:.2f}"),
    ("last packet to all on device, ms", lambda f: f"{f.tail:.2f}"),
    ("on device when the last packet arrives", lambda f: percent(f.early, 0)),
    ("CPU of the receiving thread, ms a message", lambda f: f"{f.host_cpu:.3f}"),
    ("lost, unequal", lambda f: f"{f.lost}, {0 if f.equal else f.messages}"),
)
_MODEL_ROWS: tuple[tuple[str, Of], ...] = (
    ("first packet to result, ms", lambda f: f"{f.total[0]:.1f} / {f.total[1]:.1f}"),
    ("the model alone, ms", lambda f: f"{f.inference:.1f}"),
    ("a message while others are received, ms", lambda f: f"{f.pipelined:.1f}"),
    ("hidden by the overlap", lambda f: percent(f.overlap, 0)),
)


def rows_of(
    what: str, rows: Sequence[tuple[str, Of]], figures: Sequence[WayFigures], paper: str = ""
) -> Iterator[Cells]:
    """The rows of a table, one column a way; ``not run`` without figures."""
    for name, of in rows:
        cells = [of(each) for each in figures] if figures else [NOT_RUN] * len(_WAYS)
        yield (f"{what}: {name}", *cells)
        if paper:
            yield ("in the NetML paper, ms", *_PAPER[paper])
            paper = ""


def training_rows(
    sender: LoopbackSender, make: Device | None, images: DigitImages
) -> Iterator[Cells]:
    """A row for each size of batches: messages a second by each way, accuracy, equal weights."""
    for batch in _BATCHES:
        name = f"batches of {batch}"
        if make is None:
            yield (name, *[NOT_RUN] * 4)
        else:
            epochs = [train_epoch(sender, make, way, images, batch, _PART) for way in _TRAINED]
            yield (
                name,
                *(f"{epoch.per_second:,.0f}" for epoch in epochs),
                percent(epochs[0].accuracy),
                "equal" if len({epoch.weights for epoch in epochs}) == 1 else "DIFFER",
            )
        yield ("in the NetML paper", *_PAPER_TRAINING[batch], "")


def print_table(head: Cells, rows: Iterable[Cells]) -> None:
    """Print a table as Markdown, row by row as it is measured."""
    for cells in (head, ("---",) * len(head)):
        print(f"| {' | '.join(cells)} |")
    for cells in rows:
        print(f"| {' | '.join(cells)} |", flush=True)
    print()


def main(words: list[str] | None = None) -> int:
    """Measure, and print the tables. Return the exit code."""
    parser = argparse.ArgumentParser(description="Three ways of messages to a model, in one run.")
    parser.add_argument("--device", choices=[*DEVICES], default="cpu")
    parser.add_argument("--repeats", type=int, default=25, help="messages of each way")
    parser.add_argument("--model-repeats", type=int, default=5, help="messages to each model")
    parser.add_argument("--models", nargs="*", default=["vgg11", "tiny-yolo", "binary"])
    parser.add_argument("--images", type=int, help="images of an epoch; with a GPU 60,000")
    options = parser.parse_args(words)
    count = options.images or (60_000 if options.device == "cuda" else 12_000)
    make: Device | None = None
    if options.device == "cuda" and not torch.cuda.is_available():
        print("No GPU that PyTorch can use: not run.\n")
    else:
        make = partial(open_device, options.device)
        with closing(make()) as device:
            print(f"{device.ran}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors.\n")
    rng = np.random.default_rng(0)
    head = ("least / median, or median", *(f"{TRANSFERS[way].paper} {way}" for way in _WAYS))
    with loopback_sender(_WINDOW) as sender:

        def measured() -> Iterator[Cells]:
            payloads = rng.integers(0, 256, (2, _SIZE), dtype=np.uint8)
            measure = partial(measure_ways, sender, make, _WAYS) if make else None
            figures = measure(payloads, _PART, options.repeats) if measure else []
            yield from rows_of("500 KB in packets of 1,024 bytes", _ROWS, figures, "transfer")
            for name in options.models:
                model = message_model(name)
                inputs = model_inputs(model, max(2, options.model_repeats), rng)
                figures = measure(inputs, _PART, options.model_repeats, model) if measure else []
                yield from rows_of(name, _MODEL_ROWS, figures, name if name in _PAPER else "")

        print_table(head, measured())
        images = DigitImages(count)
        title = f"one epoch of {count:,} images of 28 x 28"
        columns = tuple(f"{TRANSFERS[way].paper} {way}, images/s" for way in _TRAINED)
        print_table((title, *columns, "accuracy", "weights"), training_rows(sender, make, images))
    return 0


if __name__ == "__main__":
    sys.exit(main())
