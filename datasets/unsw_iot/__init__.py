# SPDX-License-Identifier: Apache-2.0
"""UNSW IoT traces: flows of home devices as Argus reports them; the user brings the files."""

from __future__ import annotations

from n3ic.data.catalogue_dataset import CatalogueDataSet

__all__ = ["DATASET"]


class UnswIot(CatalogueDataSet):
    """Tables of Argus-style flows with the device that each belongs to."""

    name = "unsw-iot"
    summary = "flows of IoT devices in a home, by device (UNSW Sydney; bring your own copy)"


DATASET = UnswIot()
