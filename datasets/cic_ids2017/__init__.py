# SPDX-License-Identifier: Apache-2.0
"""CIC-IDS2017: benign flows and nine kinds of attack, a balanced sample of which is embedded."""

from __future__ import annotations

from n3ic.data.catalogue_dataset import CatalogueDataSet

__all__ = ["DATASET"]


class CicIds2017(CatalogueDataSet):
    """Flows of CIC-IDS2017 as CICFlowMeter writes them; a balanced sample is embedded."""

    name = "cic-ids2017"
    summary = "real flows, benign and nine kinds of attack (UNB, CIC; a sample is embedded)"


DATASET = CicIds2017()
