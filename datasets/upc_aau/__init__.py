# SPDX-License-Identifier: Apache-2.0
"""UPC-AAU: captures of applications with the program behind each flow, and a synthetic stand-in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic.data.dataset import DataSet, table_facts
from n3ic.errors import DataError, UsageError
from n3ic.options import Option, OptionValue, parse_options

if TYPE_CHECKING:
    from n3ic.data.table import Feature, FlowTable
    from n3ic.datasets.upc_aau.loader import LoadedTable

__all__ = ["DATASET", "SYNTHETIC"]


class UpcAau(DataSet):
    """Captures and their ``.info``, which the user gets from the authors."""

    name = "upc-aau"
    summary = "captures with the application behind each flow (UPC, AAU; from its authors)"

    @property
    def catalogue(self) -> tuple[Feature, ...]:
        """Features of the standard meter; a folder's ``meter.json`` may define other features."""
        from n3ic.meter.standard import standard_spec
        from n3ic.meter.table import catalogue_of

        return catalogue_of(standard_spec())

    def load(self, path: str | Path | None = None) -> FlowTable:
        """Meter the captures of a folder and join their labels.

        Raises:
            DataError: files are missing or unreadable, or no flow has one of the classes.
            UsageError: ``path`` is None, as no sample is embedded.
        """
        return self._loaded(path).table

    def load_at(self, path: str | Path | None, packets: Sequence[int]) -> FlowTable:
        """Read flows as sequences of their first packets, decided at some packets or at their ends.

        Args:
            path: see :meth:`load`.
            packets: packets at which flows are decided, increasing, each 1 to 32; with several of
                them, flows are also decided at their ends.

        Raises:
            DataError: files are missing or unreadable, or no flow has one of the classes.
            UsageError: ``path`` is None and no sample is embedded, or the packets are invalid.
        """
        return self._loaded(path, packets).table

    def recognises(self, path: Path) -> bool:
        """Whether a folder has an ``.info`` and a capture."""
        from n3ic.datasets.upc_aau.loader import find_files

        try:
            return path.is_dir() and bool(find_files(path).captures)
        except DataError:
            return False

    def check(self, path: str | Path) -> Mapping[str, Any]:
        """Report what files hold, what was assumed about them and what was left out.

        Raises:
            DataError: files are missing or cannot be read, or no flow has one of the classes.
        """
        loaded = self._loaded(path)
        info = loaded.info
        return {
            **table_facts(loaded.table),
            "synthetic": loaded.table.synthetic,
            "label_field": info.label_field,
            "lines": info.lines,
            "lines_left_out": dict(info.bad),
            "lines_of_classes": dict(info.classes),
            "lines_of_other_labels": info.other_lines,
            "packets": loaded.extraction.counters["packets"],
            "flows": loaded.extraction.flows,
            "joined": dict(loaded.joined),
            "metered_before": loaded.cached,
            "problems": list(loaded.table.notes),
        }

    def _loaded(self, path: str | Path | None, packets: Sequence[int] | None = None) -> LoadedTable:
        from n3ic.datasets.upc_aau.loader import load

        if path is None:
            raise UsageError(
                f"{self.name} has no embedded sample (its authors give it out on request): name "
                "a folder with --data, or take upc-aau-synthetic"
            )
        return load(path, packets=packets)

    @property
    def generator_options(self) -> tuple[Option, ...]:
        """Options for the number of conversations, the seed and the frames."""
        from n3ic.datasets.upc_aau import synthetic

        return (
            Option("flows", "conversations to make", synthetic.FLOWS, minimum=1, maximum=10**7),
            Option("seed", "seed of the generator", synthetic.SEED, minimum=0),
            Option("whole", "whole frames, not only the first 96 bytes of each", False),
        )

    def generate_file(
        self,
        out: str | Path | None,
        options: Mapping[str, OptionValue],
        note: Callable[[str], object] | None = None,
        *,
        replace: bool = False,
    ) -> Path:
        """Write a folder with a synthetic capture and its ``.info``.

        Args:
            out: the folder; None for ``upc-aau-synthetic``.
            options: ``flows``, ``seed`` and ``whole``.
            note: called with a progress message.
            replace: whether a folder that this method wrote may be replaced.

        Raises:
            UsageError: an option is unknown or out of range, or the folder exists.
            N3icError: the folder cannot be written.
        """
        from n3ic.datasets.upc_aau import synthetic

        values = parse_options(self.generator_options, options, self.name)
        flows, seed = int(values["flows"]), int(values["seed"])
        target = Path(out or "upc-aau-synthetic")
        if note is not None:
            note(f"generating {flows:,} synthetic conversations from seed {seed}")
        whole = bool(values["whole"])
        return synthetic.write_data(target, flows, seed, whole=whole, replace=replace)


class UpcAauSynthetic(UpcAau):
    """Captures from a seeded generator in the format of UPC-AAU; anyone may pass them on."""

    name = "upc-aau-synthetic"
    summary = "synthetic captures in the format of UPC-AAU, from a seeded generator"
    synthetic = True

    @property
    def card(self) -> str:
        """The data card, as Markdown."""
        return (self.folder / "card_synthetic.md").read_text(encoding="utf-8")

    def recognises(self, path: Path) -> bool:
        """False: its files are recognised as UPC-AAU's, and their content marks them synthetic."""
        return False

    def load(self, path: str | Path | None = None) -> FlowTable:
        """Generate captures and read them, or read a folder that was generated.

        Raises:
            DataError: files are missing or cannot be read, or their flows are not synthetic.
        """
        return self._named(path, self._loaded(path).table)

    def load_at(self, path: str | Path | None, packets: Sequence[int]) -> FlowTable:
        """Generate captures and read them, or read a folder, as sequences of the first packets.

        Raises:
            DataError: files are missing or cannot be read, or their flows are not synthetic.
            UsageError: the packets are invalid.
        """
        return self._named(path, super().load_at(path, packets))

    def _named(self, path: str | Path | None, table: FlowTable) -> FlowTable:
        """Hide the temporary sources of a table if its captures were generated for this call."""
        if path is not None:
            return table
        sources = (replace(s, path=Path(s.path).name, identity="made up") for s in table.sources)
        return replace(table, sources=tuple(sources))

    def _loaded(self, path: str | Path | None, packets: Sequence[int] | None = None) -> LoadedTable:
        from n3ic.datasets.upc_aau import synthetic
        from n3ic.datasets.upc_aau.loader import load

        if path is not None:
            loaded = super()._loaded(path, packets)
            if not loaded.table.synthetic:
                raise DataError(f"{path}: these flows are not synthetic; read them as upc-aau")
            return loaded
        with tempfile.TemporaryDirectory(prefix="n3ic-upc-aau-") as scratch:
            folder = synthetic.write_data(Path(scratch) / "data", synthetic.FLOWS, synthetic.SEED)
            return load(folder, cache=False, packets=packets)


DATASET = UpcAau()
SYNTHETIC = UpcAauSynthetic()
