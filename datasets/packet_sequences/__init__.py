# SPDX-License-Identifier: Apache-2.0
"""Flows as sequences of their first packets: DoH tunnels, embedded, and files that users bring."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.data.dataset import DataSet, FileFeatures
from n3ic.errors import DataError, UsageError

if TYPE_CHECKING:
    from n3ic.data.table import Feature, FlowTable
    from n3ic.model.meter_spec import MeterSpec

__all__ = ["DATASET", "DOH_TUNNELS"]

DECIDED = (8,)  # packets at which flows are decided by default


class PacketSequences(DataSet):
    """Files with the lengths, directions and times of the first packets of labelled flows.

    A network that is trained on them carries the meter that computes its features from packets.
    """

    name = "packet-sequences"
    summary = "first packets of labelled flows: JSON of CertTA, NFStream's SPLT, CESNET's PPI"

    @property
    def catalogue(self) -> tuple[Feature, ...]:
        """Lengths and gaps of the first packets."""
        from n3ic.meter.sequences import sequence_spec
        from n3ic.meter.table import catalogue_of

        return catalogue_of(sequence_spec(DECIDED))

    def load(self, path: str | Path | None = None) -> FlowTable:
        """Read flows that are decided at their 8th packet, or at their end.

        Raises:
            DataError: a file is malformed.
            UsageError: ``path`` is None and no sample is embedded.
        """
        return self.load_at(path, DECIDED)

    def load_at(self, path: str | Path | None, packets: Sequence[int]) -> FlowTable:
        """Read flows that are decided at these packets; with several packets, also at their ends.

        Raises:
            DataError: a file is malformed.
            UsageError: ``path`` is None and no sample is embedded, or a packet is above 32.
        """
        from n3ic.datasets.packet_sequences.loader import load_sequences

        return load_sequences(self.name, self._path(path), packets)

    def file_features(
        self, path: Path, names: Collection[str], meter: MeterSpec | None
    ) -> FileFeatures | None:
        """Features of the flows of a file of sequences, each at the last packet that is decided."""
        from n3ic.datasets.packet_sequences.loader import features_of_file

        rule = None if meter is None else meter.decision
        last = 0 if rule is None else max(rule.packets, *rule.schedule, 0)
        return features_of_file(path, last or DECIDED[-1])

    def _path(self, path: str | Path | None) -> str | Path:
        if path is None:
            raise UsageError(f"{self.name} has no sample: name a file or a folder with --data")
        return path

    def recognises(self, path: Path) -> bool:
        """Whether a file begins like one of the formats."""
        from n3ic.datasets.packet_sequences.loader import begins_like_sequences

        try:
            return begins_like_sequences(path)
        except DataError:
            return False


class DohTunnels(PacketSequences):
    """600 flows of CIRA-CIC-DoHBrw-2020, embedded."""

    name = "doh-tunnels"
    summary = "real DNS over HTTPS: benign, and three tunnels through it (UNB, CIC; embedded)"

    def _path(self, path: str | Path | None) -> str | Path:
        return self.folder / "doh-tunnels.csv.xz" if path is None else path

    def recognises(self, path: Path) -> bool:
        """False: the format alone does not show that flows are DNS over HTTPS."""
        return False


DATASET = PacketSequences()
DOH_TUNNELS = DohTunnels()
