# SPDX-License-Identifier: Apache-2.0

# ruff: noqa: T201 - its output is what the test reads
"""A ring whose card is killed while rows are on their way; test_cluster_tap.py runs it."""

import sys
from pathlib import Path

import numpy as np

from n3ic.errors import ClusterError
from n3ic.model.network import BinaryModel
from n3ic.systems.cluster.launch import RingOptions
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.measurement import rows_to_compare
from n3ic.systems.cluster.netfpga.image import node_image
from n3ic.systems.cluster.netfpga.tap import VirtualCard, card_endpoint, host_endpoint
from n3ic.systems.cluster.placement import even_placement
from n3ic.systems.cluster.replacement import lasting_ring

CARD = 2


def main(path: str) -> None:
    model = BinaryModel.load(Path(path))
    placement = even_placement(model, 3, single={CARD})
    own, before, behind = card_endpoint(CARD), host_endpoint(CARD, 7001), host_endpoint(CARD, 7003)
    image = node_image(model, placement, CARD, own=own, predecessor=before, successor=behind)
    words = rows_to_compare(model, 200, seed=0)
    with VirtualCard(image, CARD) as card:
        options = RingOptions(
            cards={CARD: (own.ip, own.port)},
            addresses={1: (before.ip, before.port), 3: (behind.ip, behind.port)},
            timing=LinkTiming(limit=30),  # a busy machine simulates slowly
        )
        with lasting_ring(model, placement, options) as running:
            assert np.array_equal(running.scores(words[:8]), model.scores(words[:8]))
            batch = running.submit(words)
            card.kill()
            try:
                batch.result()
            except ClusterError as error:
                print(error)


if __name__ == "__main__":
    main(sys.argv[1])
