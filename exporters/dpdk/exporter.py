# SPDX-License-Identifier: Apache-2.0
"""The target ``dpdk``: meter, network and verdict as a DPDK application.

Network and meter come from the target ``host``, whose export is in the subfolder ``host/``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from n3ic.errors import ExportError
from n3ic.exporters.host.exporter import EXPORTER as HOST
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec
from n3ic.options import Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import (
    Benchmark,
    Frame,
    MeteredCapture,
    TargetMeter,
    VerificationDefaults,
)
from n3ic.targets.colocation import CoLocatedNetwork, CoLocation
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit
from n3ic.targets.figures import Bench, Report
from n3ic.util.templates import render

NETWORK = "host"
"""Subfolder of an export that holds the network and the meter."""
_STAMP_NS = 1000  # net_pcap stamps packets with microseconds


class DpdkExporter(Exporter[Any]):
    """C for DPDK: ports, lcores, policies and statistics around the host's meter and network."""

    name: ClassVar[str] = "dpdk"
    summary: ClassVar[str] = "meter, network and verdict as a DPDK application (C11)"
    shunts: ClassVar[bool] = True
    products: ClassVar[tuple[str, ...]] = (
        *("*.o", "n3ic-dpdk"),
        *(f"{NETWORK}/{name}" for name in HOST.products),
    )
    verification: ClassVar[VerificationDefaults] = HOST.verification
    graph_exporter: ClassVar[str] = "n3ic.exporters.dpdk.exporter:GRAPH"

    @cached_property
    def host(self) -> Exporter[Any]:
        """The host target for the same family of models."""
        return HOST.for_family(self.family)

    @cached_property
    def device(self) -> Device:
        """The host's processor."""
        return self.host.device

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check the network as the host target does; see the base class."""
        return self.host.check(model, options)

    def colocate(self, members: Sequence[CoLocatedNetwork]) -> CoLocation:
        """Co-locate models as the host target does."""
        return self.host.colocate(members)

    def write(self, model: Classifier, options: Options, out: Path) -> None:
        """Write the host's export, and the application's sources if the model has a meter."""
        (out / NETWORK).mkdir()
        self.host.write(model, options, out / NETWORK)
        try:
            for source in sorted((self.folder / "c").iterdir()) if model.meter else ():
                shutil.copyfile(source, out / source.name)
            values = {
                "shape": model.shape_text,
                "digest": model.digest,
                "meter": str(model.meter) if model.meter else "",
                "classes": model.classes,
                "shunt": model.shunt,
            }
            text = render(self.folder / "templates", "README.md.j2", values)
            (out / "README.md").write_text(text, "utf-8")
        except OSError as error:
            raise ExportError(f"cannot write {out}: {error.strerror or error}") from error

    def run(self, directory: Path, model: Classifier, options: Options, words: Words) -> Execution:
        """Compile the network that the application links, and run every kernel of this CPU."""
        return self.host.run(directory / NETWORK, model, options, words)

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the network's files; see the base class."""
        decoded = self.host.decode(directory / NETWORK, model, options)
        return tuple(replace(d, artefact=f"{NETWORK}/{d.artefact}") for d in decoded)

    def encode(
        self, directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
    ) -> Words | None:
        """Pack inputs by the network's ``bnn_encode`` with every kernel."""
        return self.host.encode(directory / NETWORK, model, options, features)

    @property
    def meter(self) -> TargetMeter:
        """The application's meter, which reads captures by ``net_pcap``."""
        return TargetMeter(_metered, links=(LINK_ETHERNET,), received=received)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report the host target's figures of the network, and how to measure the application."""
        report = self.host.report(model, options, directory / NETWORK)
        note = (
            "Each worker has a network's memory in common with the others and a flow cache of its "
            "own. `n3ic bench dpdk` measures packets a second beside testpmd."
            if model.meter
            else "The model names no meter: there is no application, but the network's library."
        )
        return Report(report.figures, (*report.notes, note))

    @property
    def benchmark(self) -> Benchmark:
        """A measurement beside testpmd, on the same packets."""
        return Benchmark(self._bench)

    def _bench(self, model: Classifier, options: Options) -> Bench:
        from n3ic.exporters.dpdk.bench import bench_dpdk

        return bench_dpdk(self, model)


def received(frames: Iterable[Frame], spec: MeterSpec) -> Iterator[Frame]:
    """Yield frames as ``net_pcap`` gives them: in microseconds, and without the full length."""
    for data, _, time in frames:
        yield data, len(data), time * spec.tick_ns // _STAMP_NS * _STAMP_NS // spec.tick_ns


def _metered(directory: Path, model: Classifier, options: Options, capture: Path) -> MeteredCapture:
    from n3ic.exporters.dpdk.application import meter_capture

    return meter_capture(directory, model, capture)


class DpdkGraphExporter(DpdkExporter):
    """The application around a graph of integer operations."""

    family: ClassVar[str] = ""
    graph_exporter: ClassVar[str] = ""

    @cached_property
    def host(self) -> Exporter[Any]:
        """The host target for graphs."""
        return HOST.for_graphs()


EXPORTER, GRAPH = DpdkExporter(), DpdkGraphExporter()
