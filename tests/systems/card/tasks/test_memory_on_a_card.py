# SPDX-License-Identifier: Apache-2.0
"""A card.toml whose tasks have pages of on-board memory: planned, exported and verified."""

import shutil
from pathlib import Path

import pytest

from n3ic.errors import CardError
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.systems.card.description import PacketTask
from n3ic.systems.card.export import export_card
from n3ic.systems.card.netfpga.compile import image_of
from n3ic.systems.card.parser import parse_card, read_card, read_table
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.planner import check_guaranteed, plan_card
from tests.support import small_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")


def write(folder: Path, target: str, pages: tuple[int, ...] = (4, 2), board: str = "") -> Path:
    """A card of tenants with a cache and a network each."""
    cards.net((24, 8, 2), 1).save(folder / "net.n3ic")
    tenants = "".join(
        f"""
[[tenants]]
name = "t{i}"
[[tenants.tasks]]
name = "pairs"
kind = "memory_cache"
pages = {wanted}
[[tenants.tasks]]
name = "net"
kind = "network"
model = "net.n3ic"
[[tenants.graphs]]
name = "asks"
uid = {4000 + i}
wants = "100000 packets/s"
flow = ["pairs", "net"]
"""
        for i, wanted in enumerate(pages)
    )
    device = f'[device]\ntarget = "{target}"\nuid = "udp-port"\n{board}\n'
    path = folder / "card.toml"
    path.write_text(f'name = "remembers"\n{device}{tenants}')
    return path


def plan_of(path: Path) -> CardPlan:
    return plan_card(read_card(path))


def pages_of(plan: CardPlan) -> list[int]:
    """Pages of each cache."""
    return [t.pages for t in plan.card.tasks.values() if isinstance(t, PacketTask)]


@pytest.mark.parametrize("target", ["host", pytest.param("netfpga", marks=pytest.mark.slow)])
def test_a_card_with_caches_in_memory_is_exported_and_checked(target: str, tmp_path: Path) -> None:
    if not shutil.which("cc" if target == "host" else "iverilog"):
        pytest.skip("needs a C compiler or iverilog")
    path = write(tmp_path, target, board="page_bytes = 1024\nmemory_pages = 9")
    exported = export_card(plan_of(path), tmp_path / "card")
    assert exported.check is not None
    assert exported.check.inferences >= 2


def test_memory_is_one_more_resource_of_the_card(tmp_path: Path) -> None:
    plan = plan_of(write(tmp_path, "netfpga"))
    assert plan.problems == ()
    (memory,) = (r for r in plan.resources if r.name == "pages")
    assert (memory.within, memory.per, memory.capacity) == ("card", "instance", 4096)
    assert [s.demand["pages"] * 4096 for s in plan.shares] == [4, 2]
    image = image_of(plan, EXPORTER.options, 2e8)
    assert (image.memory_pages, image.page_w) == (4096, 16)
    assert (image.page_limits, image.page_bases) == ((4, 2), (0, 4))
    # Packets take no memory, so its share is no cost in fair queueing.
    assert plan.costs["t0/pairs"].needs["pages"].value == 4


@pytest.mark.parametrize(
    ("pages", "board", "granted"),
    [
        ((32, 4), 16, (8, 4)),  # 12 and 4; a cache has a power of two
        ((16, 16, 2), 16, (4, 4, 2)),  # 7, 7 and 2
        ((8, 8), 16, (8, 8)),
    ],
)
def test_tenants_are_limited_to_their_shares(
    pages: tuple[int, ...], board: int, granted: tuple[int, ...], tmp_path: Path
) -> None:
    """By dominant-resource fairness, where the memory is what all want most of."""
    path = write(tmp_path, "netfpga", pages, f"memory_pages = {board}")
    plan = plan_of(path)
    assert pages_of(plan) == [*granted]
    image = image_of(plan, EXPORTER.options, 2e8)
    assert image.page_limits == granted
    if granted == pages:
        check_guaranteed(plan, "card.toml")
    else:
        with pytest.raises(CardError, match=rf"t0 wants {pages[0]} pages of on-board memory, \d+"):
            check_guaranteed(plan, "card.toml")


@pytest.mark.parametrize(
    ("pages", "board", "message"),
    [
        ((3, 1), "", r"card\.toml:12: 'pages': expected a power of two, got 3"),
        ((0, 1), "", "'pages'"),
        ((1, 1), "page_bytes = 100", "'page_bytes': expected a power of two, got 100"),
        ((8, 1, 1), "memory_pages = 2", "0 of 2 are its share .* none is left"),
    ],
)
def test_what_the_memory_cannot_give_is_refused(
    pages: tuple[int, ...], board: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(CardError, match=message):
        plan_of(write(tmp_path, "netfpga", pages, board))


def test_a_target_without_memory_says_so(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="expected 'memory_pages' in"):
        plan_of(write(tmp_path, "xdp"))


def test_pages_are_no_table(tmp_path: Path) -> None:
    card = parse_card(write(tmp_path, "host").read_text(), folder=tmp_path)
    task = card.tasks["t0/pairs"]
    assert isinstance(task, PacketTask)
    (tmp_path / "more.toml").write_text("pages = 8\n")
    with pytest.raises(CardError, match="'memory_cache' has no table to replace"):
        read_table(tmp_path / "more.toml", task)
