# SPDX-License-Identifier: Apache-2.0
"""Protocols of real captures by their first packets, tested on captures that nobody trained on."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from n3ic.data.split import split
from n3ic.meter.extract import extract
from n3ic.meter.labels import read_labels
from n3ic.meter.sequences import sequence_spec
from n3ic.meter.table import flow_table
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.usecases.base import use_case

PROTOCOLS = {"DNS", "HTTP", "QUIC", "TLS"}  # those that 19 captures or more have


@pytest.fixture(scope="module")
def table(real_data, tmp_path_factory):
    """Flows of nDPI's captures, those of a capture kept together as one conversation."""
    captures = real_data / "pcaps"
    if not (captures / "flows_expected.csv").is_file():
        pytest.skip(f"no flows_expected.csv in {captures}")
    out = tmp_path_factory.mktemp("ndpi") / "flows.parquet"
    files = [p for p in captures.iterdir() if p.suffix in (".pcap", ".pcapng", ".cap")]
    labels = read_labels(captures / "flows_expected.csv", "ndpi")
    spec = sequence_spec((8,))
    extract(sorted(files), out, spec, labels=labels, jobs=1)
    rows = pq.read_table(out)
    names = [(text or "").partition(".")[0] for text in rows["label"].to_pylist()]
    names = [name if name in PROTOCOLS else "" for name in names]
    at = rows.column_names.index("label")
    of = [name for name, label in zip(rows["capture"].to_pylist(), names, strict=True) if label]
    flows = flow_table("nDPI", rows.set_column(at, "label", pa.array(names)), spec, sha256="0" * 64)
    return replace(flows, conversation=np.unique(of, return_inverse=True)[1])


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")
def test_protocols_are_told_in_captures_that_nobody_trained_on(table):
    """Over five folds of captures, each flow is tested once."""
    recipe = use_case("classification").recipes["default"].with_options({"family": "tables"})
    right = rows = 0
    for seed in range(5):
        parts = split(table, "conversation", seed)
        assert {*table.conversation[parts.train]}.isdisjoint(table.conversation[parts.test])
        experiment = Experiment(table, recipe, "conversation", seed, with_baselines=False)
        right += train(experiment).test.accuracy * len(parts.test)
        rows += len(parts.test)
    assert rows == len(table)
    majority = np.bincount(table.label).max()
    assert right > 1.3 * majority
