# SPDX-License-Identifier: Apache-2.0
"""Measures how many packets per second ``flow-exec`` turns into verdicts, compared with n3ic."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from n3ic.errors import VerifyError
from n3ic.exporters.host.flows import program
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.meter.records import meter_capture
from n3ic.meter.verdicts import predict_capture
from n3ic.model.meter_spec import MeterSpec
from n3ic.model.network import BinaryModel
from n3ic.targets.bench_tools import generated_frames, median_seconds, write_pcap

PACKETS = 1_000_000


def bench_packets(
    model: BinaryModel, spec: MeterSpec, directory: Path, packets: int
) -> Mapping[str, float]:
    """Measure an export's ``flow-exec`` on generated traffic in a pcap file, after a check.

    Returns:
        Packets per second and core, by program: ``flow-exec``, ``n3ic predict CAPTURE``, and the
        compiled meter alone.

    Raises:
        MissingDependencyError: libpcap or a C compiler is missing.
        VerifyError: flow-exec does not run, or gives other verdicts than n3ic predict.
    """
    with (
        tempfile.TemporaryDirectory(prefix="n3ic-bench-") as name,
        program(directory) as path,
    ):
        capture, ours, theirs = (Path(name) / file for file in ("c.pcap", "a.csv", "b.csv"))
        write_pcap(capture, LINK_ETHERNET, generated_frames(packets))
        _run(path, capture, ours)
        predict_capture(model, capture, theirs)
        if ours.read_bytes() != theirs.read_bytes():
            raise VerifyError("flow-exec gives other verdicts than n3ic predict")
        seconds = {
            "flow-exec": median_seconds(partial(_run, path, capture, ours)),
            "n3ic predict": median_seconds(partial(predict_capture, model, capture, theirs)),
            "the compiled meter alone": median_seconds(partial(_meter, spec, capture)),
        }
    return {what: packets / spent for what, spent in seconds.items()}


def _run(path: Path, capture: Path, out: Path) -> None:
    with out.open("wb") as stream:
        done = subprocess.run([path, capture], stdout=stream, stderr=subprocess.PIPE)
    if done.returncode:
        raise VerifyError(f"flow-exec: {done.stderr.decode(errors='replace').strip()}")


def _meter(spec: MeterSpec, capture: Path) -> int:
    return sum(len(records) for records, _ in meter_capture(capture, spec))
