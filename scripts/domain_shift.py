#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0
"""Counts tunnels that models of `doh-tunnels` see in captures of another network, which has none.

    python scripts/domain_shift.py captures/ --family tables --seeds 5

It counts the TLS flows (TCP, port 443) that reach their 8th packet. In addition to all verdicts, it
shows those of flows that are not passed to the host, for the margins that pass 5, 10 and 20 % of
the held-out flows of `doh-tunnels`, and the share of its held-out tunnels that are still found.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import split
from n3ic.meter.extract import extract
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.usecases.base import use_case

PACKET, HTTPS, TCP, BENIGN = 8, 443, 6, "benign"
PASSED = (0.0, 0.05, 0.1, 0.2)


def tls_flows(captures: list[str], spec: MeterSpec) -> dict[str, NDArray[np.int64]]:
    """Features of the flows of captures, as the network's own meter counts them."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "flows.parquet"
        extract(captures, out, spec)
        rows = pq.read_table(out)
    names = ("protocol", "source_port", "destination_port", "packets")
    protocol, source, destination, packets = (rows[n].to_numpy() for n in names)
    own = (protocol == TCP) & ((source == HTTPS) | (destination == HTTPS)) & (packets >= PACKET)
    return {name: rows[name].to_numpy()[own] for name in spec.feature_names}


def verdicts(
    model: Classifier, features: Mapping[str, NDArray[np.int64]]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether each flow is called a tunnel, and its margin."""
    scores = model.scores(pack(model.input.encode({n: features[n] for n in model.input.features})))
    ordered = np.sort(scores, axis=1)
    alarms = scores.argmax(axis=1) != model.classes.index(BENIGN)
    return alarms, ordered[:, -1] - ordered[:, -2]


def main() -> None:
    """Print the counts of each seed and of all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("captures", nargs="+", help="captures and folders of them")
    parser.add_argument("--family", default="tables")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    case = use_case("classification")
    options = {"positive": "", "label": "", "packets": str(PACKET)}
    table = case.load(None, "doh-tunnels", options, lambda _: None)
    assert table.meter is not None  # noqa: S101 - sequences have a meter
    other = tls_flows(arguments.captures, table.meter)
    recipe = case.recipes["default"].with_options({"family": arguments.family})
    counts = []
    for seed in range(arguments.seeds):
        model = train(Experiment(table, recipe, seed=seed, with_baselines=False)).model
        parts = split(table, "random", seed)
        unseen = np.concatenate([parts.validation, parts.test])
        alarm, sure = verdicts(model, other)
        detected, margin = verdicts(model, {n: v[unseen] for n, v in table.features.items()})
        tunnel = table.label[unseen] != table.classes.index(BENIGN)
        least = [np.quantile(margin, share) if share else 0 for share in PASSED]
        counts.append(
            [
                (
                    np.sum(alarm & (sure >= m)),
                    np.sum(detected & tunnel & (margin >= m)),
                    np.sum(tunnel),
                )
                for m in least
            ]
        )
        print(f"seed {seed}: alarms {', '.join(str(alarms) for alarms, _, _ in counts[-1])}")
    flows = arguments.seeds * len(next(iter(other.values())))
    for share, (alarms, detected, tunnels) in zip(PASSED, np.sum(counts, axis=0), strict=True):
        print(
            f"passed {share:.0%}: {alarms} of {flows} flows called a tunnel, "
            f"{1000 * alarms / flows:.0f} of a thousand; {detected} of {tunnels} tunnels found"
        )


if __name__ == "__main__":
    main()
