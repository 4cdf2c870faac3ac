#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the processor time of ``n3ic stream`` with that of ``flow-exec``, on one-packet flows.

Each round runs ``flow-exec``, then the stream without a sink (a function that takes flows and does
nothing), with JSON lines and with Parquet, all with the same model and the same capture. The
verdicts are compared first. Printed are medians over the rounds: seconds of processor time, and
their ratio to ``flow-exec`` of the same round. The start of Python is not counted.

``--nfstream PYTHON`` also reads the capture with NFStream (``pip install nfstream`` in an
environment of its own), which meters flows and decides nothing: its statistics without dissection,
each flow handed to an empty loop. Its processor time has the start of Python and its imports.

Usage: scripts/stream_throughput.py [--flows 300000] [--rounds 5] [--model FILE]
           [--nfstream PYTHON]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from n3ic.api import load
from n3ic.exporters.host.flows import program
from n3ic.meter.compiled import Frames
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.meter.standard import standard_spec
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.systems.stream.api import stream
from n3ic.targets.bench_tools import core_seconds_of, write_pcap
from n3ic.targets.directory import export

GAP_US = 10  # between two packets
NFSTREAM = """
import sys
from nfstream import NFStreamer
if __name__ == "__main__":
    stream = NFStreamer(sys.argv[1], statistical_analysis=True, n_dissections=0, n_meters=1)
    flows = sum(1 for _ in stream)
    sys.exit(flows != int(sys.argv[2]))
"""
CUTS = tuple(1 << n for n in range(0, 24, 3))


def example_model() -> Classifier:
    """A random binary network that reads every feature of the standard meter but its windows."""
    spec, rng = standard_spec(), np.random.default_rng(0)
    fields = tuple(Field.thermometer(f.name, CUTS, unit=f.unit) for f in spec.features)
    model = random_model((len(CUTS) * len(fields), 32, 16, 2), rng)
    return model.with_input(InputSpec(fields), meter=spec)


def one_packet_flows(flows: int) -> Frames:
    """Connection requests, each of another source: Ethernet, IPv4, TCP without data."""
    rng = np.random.default_rng(0)
    head = "00000000000000000000000008004500002800000000400600000a000000c633640104000050"
    frame = np.frombuffer(bytes.fromhex(head) + bytes(8) + b"\x50\x02" + bytes(12), dtype=np.uint8)
    data = np.tile(frame, (flows, 1))
    sources = np.arange(flows, dtype=">u4").view(np.uint8).reshape(flows, 4)
    data[:, 27:30] = sources[:, 1:]
    data[:, 34:36] = rng.integers(1024, 1 << 16, flows).astype(">u2").view(np.uint8).reshape(-1, 2)
    sizes = np.full(flows, len(frame), dtype=np.uint32)
    starts, times = (np.arange(flows, dtype=np.uint64) * np.uint64(n) for n in (len(frame), GAP_US))
    return Frames(data.ravel(), starts, sizes, sizes, times)


def run_flow_exec(path: Path, capture: Path, out: Path) -> None:
    """Run the program; its verdicts go to a file."""
    with out.open("wb") as file:
        subprocess.run([path, capture], stdout=file, stderr=subprocess.DEVNULL, check=True)


def check_verdicts(csv: Path, lines: Path, flows: int) -> None:
    """Compare every column of each flow.

    Raises:
        SystemExit: They differ, or there are not so many.
    """
    names, *rows = (line.split(",") for line in csv.read_text().splitlines())
    of_csv = [dict(zip(names, row, strict=True)) for row in rows]
    of_json = [json.loads(line) for line in lines.read_bytes().splitlines()]
    if (len(of_csv), len(of_json)) != (flows, flows):
        raise SystemExit(f"flow-exec decided {len(of_csv):,} flows, n3ic stream {len(of_json):,}")
    for one, other in zip(of_csv, of_json, strict=True):
        if any(one[name] != str(other[name]) for name in names):
            raise SystemExit(f"the verdicts differ: flow-exec {one}, n3ic stream {other}")


def ways(model: Classifier, program_path: Path, folder: Path) -> Mapping[str, Callable[[], object]]:
    """What is measured, by name."""
    capture = folder / "c.pcap"
    run = partial(stream, capture, model, replace=True)
    return {
        "flow-exec": partial(run_flow_exec, program_path, capture, folder / "flows.csv"),
        "no sink": partial(run, on_flows=lambda _: None),
        "JSON lines": partial(run, folder / "flows.jsonl"),
        "Parquet": partial(run, folder / "flows.parquet"),
    }


def run_nfstream(python: Path, capture: Path, flows: int) -> None:
    """Read the capture with NFStream, in another environment's Python.

    Raises:
        CalledProcessError: it failed, or did not give as many flows.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(NFSTREAM)
        script.flush()
        subprocess.run([python, script.name, capture, str(flows)], check=True)


def measure(
    model: Classifier, flows: int, rounds: int, nfstream: Path | None = None
) -> list[dict[str, float]]:
    """Seconds of processor time of each way, round by round, after a comparison of the verdicts.

    Raises:
        SystemExit: The verdicts differ.
    """
    with tempfile.TemporaryDirectory(prefix="n3ic-stream-") as name:
        folder = Path(name)
        write_pcap(folder / "c.pcap", LINK_ETHERNET, one_packet_flows(flows))
        export(model, "host", folder / "host")
        with program(folder / "host") as path:
            works = dict(ways(model, path, folder))
            if nfstream:
                works["NFStream"] = partial(run_nfstream, nfstream, folder / "c.pcap", flows)
            for work in works.values():  # builds what is missing
                work()
            check_verdicts(folder / "flows.csv", folder / "flows.jsonl", flows)
            return [{n: core_seconds_of(w) for n, w in works.items()} for _ in range(rounds)]


def ratio(rounds: list[dict[str, float]], way: str) -> float:
    """Median of the ratios of a way to ``flow-exec``."""
    return median(times[way] / times["flow-exec"] for times in rounds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--nfstream", type=Path, help="a Python that has NFStream")
    chosen = parser.parse_args()
    model = load(chosen.model) if chosen.model else example_model()
    rounds = measure(model, chosen.flows, chosen.rounds, chosen.nfstream)
    print(f"{model.name}, {model.shape_text}; {chosen.flows:,} flows; {chosen.rounds} rounds")
    for way in rounds[0]:
        seconds = median(times[way] for times in rounds)
        print(f"{way:12} {seconds:7.3f} s  {ratio(rounds, way):6.2f} of flow-exec")


if __name__ == "__main__":
    main()
