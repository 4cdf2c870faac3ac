# SPDX-License-Identifier: Apache-2.0
"""Goodput, latency and size of the front end: the table and the picture of the docs.

    python scripts/front_end_table.py OUT [--synth]

writes OUT/front-end-rate.json, .md and .png. It builds four simulations, which takes minutes. With
``--synth``, it only synthesises the front end, with Yosys.
"""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from front_end_measurement import measure, tcp_latency
from matplotlib.figure import Figure

from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.frontend.bench import FrontBench
from n3ic.exporters.netfpga.frontend.parameters import frontend_parameters
from n3ic.exporters.netfpga.tools import synth
from n3ic.model.random_models import random_model
from n3ic.util.pictures import PALE, legend, look, new_figure, save, styled

ROWS = (1, 2, 4, 8, 16, 32, 45, 127, 250)
MODEL = random_model((256, 8, 2), np.random.default_rng(1), extremes=False)


def options(width: str, bypass: bool) -> dict[str, Any]:
    """The options of the export."""
    wide = {"executors": 2} if width == "512" else {}
    return {"front-end": "tcp", "style": "unrolled", "data-width": width, "mtu": 9000,
            "bypass": bypass, **wide}  # fmt: skip


def main(out: Path, size: bool) -> None:
    """Measure all variants and write the results."""
    out.mkdir(parents=True, exist_ok=True)
    entries: dict[str, Any] = {}
    for width, bypass in (("512", True), ("512", False), ("64", True), ("64", False)):
        gbps, mhz = (100, 250) if width == "512" else (10, 156.25)
        with tempfile.TemporaryDirectory() as name:
            parsed = EXPORTER.parse_options(options(width, bypass))
            EXPORTER.write(MODEL, parsed, Path(name))
            with FrontBench(Path(name)) as bench:
                rates = measure(bench, MODEL, ROWS, gbps=gbps, mhz=mhz)
                latency = {r: tcp_latency(bench, MODEL, r) for r in (1, 45)}
            entry = {"rates": [asdict(r) for r in rates], "tcp_latency": latency}
            if size:
                form = frontend_parameters(MODEL, parsed)
                synthesis = synth.synthesise_card(Path(name), "n3ic_front", form.parameters)
                entry["yosys"] = asdict(synthesis)
        entries[f"{width}-{'bypass' if bypass else 'stored'}"] = entry
        (out / "front-end-rate.json").write_text(json.dumps(entries, indent=2) + "\n")
        print(table(entries))
    (out / "front-end-rate.md").write_text(table(entries))
    save(picture(entries), out, "front-end-rate")


def table(entries: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = []
    for name, entry in entries.items():
        lines += [
            f"\n{name}\n",
            "| payload | rows | limit Gb/s | taken | stalls | sent back | latency, clocks |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {r['payload']:,} | {r['rows']} | {r['limit']:.2f} | {r['goodput']:.2f} | "
            f"{r['stalls']} | {r['answered']:.2f} | {r['latency']} |"
            for r in entry["rates"]
        ]
        lines.append(f"\nTCP, clocks by rows: {entry['tcp_latency']}; {entry.get('yosys', '')}")
    return "\n".join(lines) + "\n"


@styled
def picture(entries: dict[str, Any]) -> Figure:
    """Draw goodput by payload, and the limit of the wire."""
    figure, axes = new_figure(7.0, 5.4)
    variants = (("512", "512 bits, 250 MHz, 100 Gb/s"), ("64", "64 bits, 10 Gb/s"))
    for number, (width, title) in enumerate(variants):
        rates, own = entries[f"{width}-bypass"]["rates"], look(number)
        sizes = [r["payload"] for r in rates]
        axes.plot(
            sizes, [r["limit"] for r in rates], **own.line, label=f"{title}: the wire's limit"
        )
        axes.plot(
            sizes, [r["goodput"] for r in rates], **own.curve | {"linestyle": ""},
            label=f"{title}: taken",
        )  # fmt: skip
    axes.set(xscale="log", xlabel="bytes of a datagram's payload", ylabel="goodput, Gb/s")
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
    axes.set_ylim(bottom=0)
    axes.grid(color=PALE)
    legend(figure, columns=2)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--synth" in sys.argv)
