# SPDX-License-Identifier: Apache-2.0
"""Which model an answer names after an update: the one that computed it, not the export's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import numpy as np
import pytest

from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.frontend import messages as m
from n3ic.exporters.netfpga.frontend import packets as p
from n3ic.exporters.netfpga.frontend.bench import FrontBench
from n3ic.model.random_models import random_model
from tests.exporters.netfpga.frontend.test_front_tcp import CARD, HOST, Peer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator"),
]
BITS = 160
WIDTHS = ["64", "512"]
OLD, NEW = (random_model((BITS, 4, 3), np.random.default_rng(seed)) for seed in (1, 2))


@pytest.fixture(name="updated", scope="module", params=WIDTHS)
def updated_fixture(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FrontBench]:
    """The old model's front end around banks that hold the new one, as an update leaves them."""
    folders = [tmp_path_factory.mktemp(name) for name in ("old", "new")]
    options = EXPORTER.parse_options({"front-end": "tcp", "data-width": request.param})
    for folder, model in zip(folders, (OLD, NEW), strict=True):
        EXPORTER.write(model, options, folder)
    out, new = folders
    shutil.copyfile(new / "rtl" / "n3ic_core.v", out / "rtl" / "n3ic_core.v")
    for file in (new / "mem").iterdir():
        shutil.copyfile(file, out / "mem" / file.name)
    with FrontBench(out, quiet=2000) as bench:
        yield bench


def asked(number: int, rows: int) -> tuple[bytes, bytes]:
    """A message, and what the new model answers."""
    rng = np.random.default_rng(number)
    words = rng.integers(0, 2**32, (rows, BITS // 32), dtype=np.uint32)
    sent = m.request(number, 0, m.bit_rows(words, BITS)).to_bytes()
    own, body = int(NEW.digest[:8], 16), m.results_body(NEW, words)
    return sent, m.Message(m.RESULTS, number, own, rows, m.result_bytes(3), body).to_bytes()


def test_an_answer_names_the_model_that_computed_it(updated: FrontBench) -> None:
    for number, rows in ((1, 1), (2, 3), (3, 20)):
        sent, wanted = asked(number, rows)
        (left,) = updated.run([p.udp(HOST, CARD, sent)]).left
        assert p.read_ipv4(left.data).payload == wanted


def test_a_message_cut_at_any_byte_has_the_same_answer(updated: FrontBench) -> None:
    peer = Peer(updated, 1000)
    sent, wanted = asked(4, 3)
    for cut in (1, 15, 16, 17, 16 + 19, 16 + 20, 16 + 21, len(sent) - 1):
        assert peer.says(sent[:cut]) + peer.says(sent[cut:]) == wanted, cut
    assert b"".join(peer.says(sent[i : i + 1]) for i in range(len(sent))) == wanted
    several = [asked(number, rows) for number, rows in ((5, 1), (6, 2), (7, 9))]
    data, answers = (b"".join(part) for part in zip(*several, strict=True))
    for step in (7, 13, 16, 21, 40, 150):
        replies = [peer.says(data[i : i + step]) for i in range(0, len(data), step)]
        assert b"".join(replies) == answers, step
    peer.close()
