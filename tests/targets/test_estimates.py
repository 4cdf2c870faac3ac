# SPDX-License-Identifier: Apache-2.0
"""What a target says before anything is written is what its report says."""

import numpy as np

from n3ic.model.random_models import random_model
from n3ic.targets.base import exporter


def figures(model, **given):
    tool = exporter("netfpga").for_family(model.family)
    return {f.name: f for f in tool.estimate(model, tool.parse_options(given))}


def test_an_unrolled_core_has_sites_and_a_latency():
    from n3ic.exporters.netfpga.unrolled import design as unrolled_design
    from n3ic.exporters.netfpga.unrolled.size import estimate

    model = random_model((24, 6, 3), np.random.default_rng(0))
    by_name = figures(model, style="unrolled")
    assert by_name["lut_sites"].value == estimate(model, outputs="scores").lut_sites
    clocks = unrolled_design.latency(model, outputs="scores")
    assert by_name["latency.clocks"].value == clocks
    assert by_name["latency"].value == 5 * clocks  # ns at 200 MHz
    assert {f.kind for f in by_name.values()} == {"estimated"}
    assert figures(model, style="unrolled", pipeline=4)["latency"].value < by_name["latency"].value


def test_a_sequential_core_has_memory_and_no_latency_before_it_is_simulated():
    by_name = figures(random_model((24, 6, 3), np.random.default_rng(0)))
    assert by_name["bram36"].value >= 0
    assert "latency" not in by_name


def test_targets_without_an_estimate_say_nothing():
    model = random_model((24, 6, 3), np.random.default_rng(0))
    tool = exporter("host")
    assert tool.estimate(model, tool.parse_options({})) == ()
