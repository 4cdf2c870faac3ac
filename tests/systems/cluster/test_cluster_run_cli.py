# SPDX-License-Identifier: Apache-2.0
"""``n3ic cluster run`` as a person types it."""

import json
import re

import numpy as np
import pytest

from n3ic.model.random_models import random_model
from n3ic.systems.cluster.placement import LayerSplit, even_placement
from n3ic.systems.cluster.plan import PLAN_VERSION

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_nodes")]  # starts processes


def plan_text(placement):
    return json.dumps({"version": PLAN_VERSION, "placement": placement.to_dict()})


def test_a_ring_of_processes_loses_packets_and_computes_the_models_scores(n3ic, tmp_path):
    model = random_model((400, 130, 40, 3), np.random.default_rng(0), density=0.5)
    model.save(tmp_path / "m.n3ic")
    completed = n3ic(
        "cluster run m.n3ic --nodes 4 --loss 0.01 --rows 50 --split output,input,output --limit 60"
    )
    assert "50 of 50 rows: the single model's scores, bit for bit" in completed.stdout
    assert re.search(r"\none process without a ring, .*: [\d,]+ rows/s, ", completed.stdout)
    placed = even_placement(model, 2, (LayerSplit.INPUT, LayerSplit.OUTPUT, LayerSplit.REPLICATED))
    (tmp_path / "plan.json").write_text(plan_text(placed))
    done = json.loads(
        n3ic("cluster run m.n3ic --plan plan.json --rows 20 --limit 60 --json").stdout
    )
    assert (done["kind"], done["rows"]) == ("measured", 20)
    assert done["one_process_rows_per_s"] > 0
    assert done["placement"] == placed.to_dict()


def test_the_networks_of_a_run_are_one_wide_network(n3ic, tmp_path):
    (tmp_path / "run" / "models").mkdir(parents=True)
    for i in range(3):
        model = random_model((152, 32, 16, 2), np.random.default_rng(i))
        model.save(tmp_path / "run" / "models" / f"q{i}.n3ic")
    output = n3ic("cluster run run --nodes 2 --rows 20 --limit 60").stdout
    assert "152-96-48-6 over 2 nodes" in output


def test_the_rows_of_a_table_are_computed(n3ic, tmp_path):
    random_model((40, 33, 2), np.random.default_rng(0)).save(tmp_path / "m.n3ic")
    rows = "".join(f"{i * 97},{i}\n" for i in range(70))
    (tmp_path / "t.csv").write_text(f"x0,x1\n{rows}")
    output = n3ic("cluster run m.n3ic --nodes 2 --flows t.csv --limit 60").stdout
    assert "70 of 70 rows" in output
    (tmp_path / "t.csv").write_text("x0\n1\n")
    done = n3ic("cluster run m.n3ic --nodes 2 --flows t.csv", expect=1)
    assert "column missing: x1" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("run m.n3ic --split half", 2, "expected output, input, replicated"),
        ("run m.n3ic --split output,input,output", 2, "expected one or 2 of them"),
        ("run m.n3ic --card 3=here", 2, "expected NODE=HOST:PORT"),
        ("run m.n3ic --card 9=127.0.0.1:9", 1, "node 9: expected a node of the ring, 1 to"),
        ("run m.n3ic --plan m.n3ic", 1, "not a JSON file"),
        ("run m.n3ic --plan plan.json --nodes 4", 2, "the plan plan.json has 2"),
        ("run other.n3ic --plan plan.json", 1, "plan again"),
        ("run m.n3ic --nodes 1 --dask tcp://127.0.0.1:9", 1, "no Dask scheduler answers"),
        ("run m.n3ic --nodes 1 --address 1=192.0.2.1:9", 1, "192.0.2.1:9: Cannot assign"),
    ],
)
def test_mistakes_get_one_line_and_a_code(n3ic, tmp_path, words, code, message):
    model = random_model((64, 40, 2), np.random.default_rng(0))
    model.save(tmp_path / "m.n3ic")
    random_model((64, 40, 2), np.random.default_rng(1)).save(tmp_path / "other.n3ic")
    (tmp_path / "plan.json").write_text(plan_text(even_placement(model, 2)))
    done = n3ic(f"cluster {words}", expect=code)
    assert message in done.stderr
    assert done.stdout == ""
