# SPDX-License-Identifier: Apache-2.0
"""Flows of one incident count once, so a model that is no better is promoted as seldom as said."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.meter.labels import Labelled
from n3ic.systems.stream.learning.blocks import (
    OpenBlocks,
    block_hashes,
    block_starts,
    first_blocks,
    last_blocks,
    record_key,
)
from n3ic.systems.stream.learning.late_labels import LabelJoin
from n3ic.systems.stream.learning.learner import LearnSettings
from n3ic.systems.stream.learning.learning_folder import LearningFolder
from n3ic.systems.stream.learning.replay import numbered
from n3ic.systems.stream.learning.rows import LabelledRows
from scripts.promotion_level import level
from tests.support.changing_traffic import CLASSES, labelled, tables, traffic

MINUTE = 60_000_000  # ticks of a microsecond


def in_blocks(*blocks):
    """Flows of these blocks; a flow's feature is its number."""
    number = np.arange(len(blocks))
    return LabelledRows(number[:, None].astype(np.uint32), number * 0, np.array(blocks, np.uint64))


@pytest.mark.slow
@pytest.mark.parametrize(("burst", "runs"), [(20, 40), (5, 200), (20, 200)])
def test_equal_models_are_promoted_as_seldom_as_stated_with_bursts(burst, runs):
    assert level(burst, runs, flows=2000, least_bursts=100).promoted <= 0.05


@pytest.mark.slow
def test_without_blocks_bursts_promote_equal_models():
    assert level(20, 20, flows=2000, least_bursts=100, by_flow=True).promoted > 0.4


@pytest.mark.exhaustive
@pytest.mark.parametrize("burst", [1, 100])
def test_the_level_holds_for_single_flows_and_floods(burst):
    assert level(burst, 100).promoted <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("burst", [1, 5, 20])
def test_a_better_model_is_still_promoted(burst):
    assert level(burst, 20, better=True).promoted >= 0.5


def test_what_flows_have_in_common_makes_their_block():
    records = numbered(6)
    records["source"][:, :4] = [[10, 0, 0, 1]] * 4 + [[10, 0, 0, 2]] * 2
    records["destination"][:, :4] = 10, 0, 0, 9
    records["source_port"], records["destination_port"] = range(6), 80
    records["first"] = 0, MINUTE - 1, MINUTE, 0, 0, 0
    numbers = {
        "source,minute": [0, 0, 1, 0, 2, 2],
        "minute,source": [0, 0, 1, 0, 2, 2],
        "source": [0, 0, 0, 0, 1, 1],
        "destination,minute": [0, 0, 1, 0, 0, 0],
        "minute": [0, 0, 1, 0, 0, 0],
        "flow": [0, 1, 2, 3, 4, 5],
    }
    for block, wanted in numbers.items():
        hashes = block_hashes(records, 1000, block, 0).tolist()
        order = {each: i for i, each in enumerate(dict.fromkeys(hashes))}
        assert [order[each] for each in hashes] == wanted, block
    assert set(block_hashes(records, 1000, "source", 1)) != set(
        block_hashes(records, 1000, "source", 0)
    )
    back = records[:1].copy()
    for one, other in (("source", "destination"), ("source_port", "destination_port")):
        back[one], back[other] = records[:1][other], records[:1][one]
    assert block_hashes(back, 1000, "flow", 0) == block_hashes(records[:1], 1000, "flow", 0)


@pytest.mark.parametrize("block", ["", "host", "source,source", "flow,minute", "source, minute"])
def test_an_unknown_block_is_refused(block):
    with pytest.raises(UsageError, match="block: expected flow, or some of source"):
        LearnSettings(block=block)


def test_a_block_is_judged_once_by_what_was_labelled_until_then():
    blocks = OpenBlocks(1, most=3)
    closed = blocks.add(in_blocks(7, 8, 7, 9, 7, 8, 9, 10))
    assert closed.features[:, 0].tolist() == [0, 2, 1, 3]  # 10 is still open
    assert closed.block.tolist() == [7, 7, 8, 9]
    assert blocks.late == 3


def test_what_is_remembered_is_bounded():
    blocks = OpenBlocks(1, most=1, remembered=2)
    assert blocks.add(in_blocks(1, 2, 1, 3, 1)).block.tolist() == [1, 2, 3, 1]
    assert blocks.late == 1


def test_blocks_do_not_depend_on_batches():
    rng = np.random.default_rng(0)
    rows = in_blocks(*rng.integers(0, 90, 400).tolist())
    whole, parts = OpenBlocks(1), OpenBlocks(1)
    one = whole.add(rows)
    other = [parts.add(rows.select(slice(at, at + 7))) for at in range(0, 400, 7)]
    assert one.to_dict() == LabelledRows.joined(*other).to_dict()
    assert whole.late == parts.late > 0


def test_parts_of_rows_are_whole_blocks():
    rows = in_blocks(4, 4, 2, 5, 5, 5)
    assert block_starts(rows.block).tolist() == [0, 2, 3]
    assert [len(first_blocks(rows, n)) for n in (0, 1, 2, 3, 9)] == [0, 2, 3, 6, 6]
    assert [len(last_blocks(rows, n)) for n in (1, 2, 3, 9)] == [3, 4, 6, 6]
    none = in_blocks()
    assert not len(first_blocks(none, 3)) and not len(last_blocks(none, 3))


def test_a_burst_of_one_source_is_one_block_of_labelled_flows():
    model = tables(rows=300)
    flows = traffic(40, 3)
    flows.records["source"][:20] = flows.records["source"][0]
    flows.records["source_port"] = range(40)
    entries = [
        (record_key(record), Labelled(CLASSES[label]))
        for record, label in zip(flows.records, flows.label, strict=True)
    ]
    for block, count in (("source,minute", 21), ("flow", 40)):
        join = LabelJoin(model, block=block)
        join.flows(flows.batch(model, slice(0, 40)))
        assert len({*join.labels(entries).block.tolist()}) == count


@pytest.mark.slow
def test_a_folder_that_resumes_decides_as_one_that_was_not_interrupted(tmp_path):
    """Open and closed blocks come back from the log, even if a burst crosses the interruption."""
    model, settings = tables(), LearnSettings(every=300)
    batches = []
    hashes = np.random.default_rng(0).integers(0, 1 << 64, 1800, np.uint64)
    for i in range(6):
        rows = labelled(traffic(300, i, changed=True), i)
        number = np.arange(300) + 290 * i
        block = np.where(number % 10 == 0, number % 70, number // 3)  # some come again and again
        batches.append(replace(rows, block=hashes[block]))
    decisions, late = [], []
    for name, interrupted in (("one", False), ("other", True)):
        LearningFolder.begin(tmp_path / name, model, settings)
        learning = LearningFolder(tmp_path / name)
        for rows in batches:
            learning.add_rows(rows)
            if interrupted:
                learning.close()
                learning = LearningFolder(tmp_path / name)
        decisions.append(learning.decisions)
        late.append(learning.learner.blocks.late)
        learning.close()
    assert decisions[0] == decisions[1]
    assert late[0] == late[1] > 0
    assert any(each["what"] == "test" and each["blocks"] for each in decisions[0])
