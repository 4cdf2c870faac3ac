# SPDX-License-Identifier: Apache-2.0
"""What a target may have beside an export: a meter, an importer, a benchmark, a simulated card."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec
from n3ic.options import Option, Options, OptionValue
from n3ic.targets.figures import Bench

Frame = tuple[bytes, int, int]
"""Captured bytes, length on the wire, time in units of the meter's specification."""


@dataclass(frozen=True)
class MeteredCapture:
    """Results of a target's own meter and network on a capture.

    Attributes:
        flows: a row for each flow in the order of decision, its values as text: ``row``,
            ``source``, ``source_port``, ``destination``, ``destination_port``, ``protocol``,
            ``first_us``, ``last_us``, ``packets``, ``decided``, ``class`` (the name of the
            verdict), ``margin``, the score of each class, each register, each feature, and ``bits``
            (the network's input, bit 0 first).
        counters: ``packets``, ``late``, ``evicted``, and packets put aside by reason; missing
            ones are 0. A target that reads time stamps from captures also has ``back`` and
            ``ahead``, the stamps that go back or jump.
    """

    flows: tuple[tuple[str, ...], ...]
    counters: Mapping[str, int]


def all_frames(frames: Iterable[Frame], spec: MeterSpec) -> Iterable[Frame]:
    """The frames of a capture, if none is lost on the way to the meter."""
    return frames


@dataclass(frozen=True)
class VerificationDefaults:
    """How a target's artefacts are verified.

    Attributes:
        options: options of the verification.
        vectors: number of random vectors that ``verify`` runs by default.
        quick_vectors: number of random vectors at export time.
    """

    options: tuple[Option, ...] = ()
    vectors: int = 10_000
    quick_vectors: int = 500


@dataclass(frozen=True)
class TargetMeter:
    """A meter among the artefacts, which turns packets into flows.

    Attributes:
        run: runs meter and network on a plain capture: the export directory, the model, the
            options and the capture. The model has a meter. Raises MissingDependencyError if a tool
            is not installed, and VerifyError if the artefacts do not build or run.
        links: link types of the captures that it reads; empty for all.
        evicts: whether a full flow cache evicts flows as the specification says. If not, captures
            are compared with room for all their flows.
        received: the frames of a capture that reach the meter. The reference meter gets the same.
    """

    run: Callable[[Path, Any, Options, Path], MeteredCapture]
    links: tuple[int, ...] = ()
    evicts: bool = True
    received: Callable[[Iterable[Frame], MeterSpec], Iterable[Frame]] = all_frames


@dataclass(frozen=True)
class Importer:
    """An importer of networks in the target's format.

    Attributes:
        read: reads a file; raises ModelError, with the reason, if it is no model that n3ic has.
        suffixes: suffixes of such files; empty if another target has them.
    """

    read: Callable[[Path], Classifier]
    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """A measurement of the target beside its alternatives.

    Attributes:
        run: measures a model with options, after checking that all agree. Raises UsageError if the
            model cannot be measured, MissingDependencyError if a tool is not installed, and
            VerifyError if the target's results differ from the model's.
        options: its options.
    """

    run: Callable[[Any, Options], Bench]
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class CardSimulation:
    """A card that is simulated between network interfaces.

    Attributes:
        run: runs the export in a directory with options until interrupted, and calls a function
            with lines of text. Raises MissingDependencyError if this machine lacks a tool or
            ``/dev/net/tun``, and N3icError if this process is not root or a device exists.
        options: its options.
    """

    run: Callable[[Path, Options, Callable[[str], None]], None]
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class SiteCount:
    """How a target estimates the LUT sites of a model's smallest core.

    Its :meth:`~n3ic.targets.base.Exporter.estimate` has the figures ``lut_sites`` and, with the
    options ``cuts``, ``comparisons.lut_sites``.

    Attributes:
        options: options of an export with the smallest core.
        cuts: further ones, with which the card compares features with cuts.
    """

    options: Mapping[str, OptionValue]
    cuts: Mapping[str, OptionValue]
