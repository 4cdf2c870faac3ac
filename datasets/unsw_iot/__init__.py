"""UNSW IoT traces: flows of home devices as Argus tells them, which the user brings."""

from __future__ import annotations

from n3ic.data.described import DescribedDataSet

__all__ = ["DATASET"]


class UnswIot(DescribedDataSet):
    """Tables of Argus-style flows with the device that each belongs to."""

    name = "unsw-iot"
    summary = "flows of IoT devices in a home, by device (UNSW Sydney; bring your own copy)"


DATASET = UnswIot()
