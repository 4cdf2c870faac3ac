# SPDX-License-Identifier: Apache-2.0
"""The seeds of a release and the table of its runs."""

import pytest

from scripts import release_table

COMMIT = "0d73c5644d9704aaa5307492dea12646ff8db9e4"


def test_a_digest_decides_different_seeds():
    seeds = release_table.seeds_of(COMMIT)
    assert seeds == release_table.seeds_of(COMMIT)
    assert len(set(seeds)) == 5
    assert all(10_000 <= seed < 100_000 for seed in seeds)
    assert not set(seeds) & set(release_table.seeds_of(COMMIT[:-1] + "5"))


def test_a_digest_is_whole():
    with pytest.raises(ValueError, match="40 or 64 hexadecimal digits"):
        release_table.seeds_of(COMMIT[:10])


def metrics(accuracy: float, tree: float | None) -> dict:
    """Figures of a run as metrics.json has them."""
    figures = {"accuracy": accuracy, "accuracy_unseen": accuracy - 0.04, "fpr": 0.05}
    half = {"shift": "times x 0.5, rates x 2", "accuracy": accuracy - 0.1, "false_alarms": 0.25}
    rows = [figures | {"shift": "none"}, half]
    baselines = (
        {} if tree is None else {"random_forest": figures | {"accuracy": tree, "bytes": 2e5}}
    )
    memory = {"total_bytes": 2164}
    rates = [{"prevalence": p, "precision": p * 17 * accuracy} for p in (0.1, 0.01, 0.001)]
    return {
        "test": figures,
        "shifts": {"rows": rows},
        "baselines": baselines,
        "memory": memory,
        "base_rates": {"rates": rates},
    }


def test_the_table_has_means_and_deviations_of_what_every_run_has():
    recipes = {
        "default": {"binary": [metrics(0.92, 0.91), metrics(0.94, 0.93)]},
        "published": {"binary": [metrics(0.97, 0.95), metrics(0.97, None)]},
    }
    lines = release_table.table(recipes).splitlines()
    assert lines[2] == (
        "| **binary network** | 93.0±1.4 | 89.0±1.4 | 5.0 | 2,164 "
        "| 97.0±0.0 | 93.0±0.0 | 5.0 | 2,164 |"
    )
    assert "the same, times x 0.5, rates x 2" in lines[3]
    assert lines[3].endswith("| 83.0±1.4 |  | 25.0 |  | 87.0±0.0 |  | 25.0 |  |")
    assert lines[4].endswith("| 92.0±1.4 | 89.0±1.4 | 5.0 | 200 kB |  |  |  |  |")
    assert len(lines) == 5


def test_the_precision_at_rare_attacks_is_said_of_every_model():
    recipes = {
        "default": {"binary": [metrics(0.8, None), metrics(1.0, None)]},
        "published": {"tables": [metrics(0.9, None)]},
    }
    assert release_table.precisions(recipes) == (
        "Precision in per cent where 0.1% of the flows are attacks: "
        "1.5±0.2 (`default`, binary), 1.5 (`published`, tables)."
    )
