# SPDX-License-Identifier: Apache-2.0
"""Each target that meters gives the features by source of the reference meter."""

import random
from dataclasses import replace

import pytest

from n3ic.meter.packet import LINK_ETHERNET
from n3ic.meter.sources import table_bytes
from n3ic.meter.standard import standard_spec
from n3ic.model.passes import unchanged
from n3ic.targets.base import exporter
from n3ic.targets.fuzz_traffic import pcap
from n3ic.targets.meter_verification import check_metering, reference_flows
from tests.support.metered_models import metered_network
from tests.support.sourced_traffic import frames_of_sources, sourced

SPEC = replace(standard_spec(schedule=(1, 2, 5), idle_timeout_us=20_000), windows=())
SPEC = replace(sourced(SPEC, 12, 16), cache_flows=4000)  # sources make room, flows do not
MODEL = metered_network(SPEC, 25, classes=("a", "b", "d"), extremes=False)
FRAMES = frames_of_sources(random.Random(5), 900, 300)


@pytest.fixture
def exported(request, tmp_path):
    """A function that writes an export: its target, its folder and its options."""

    def write(name):
        tool = exporter(name)
        options = {option.name: option.default for option in tool.options}
        (tmp_path / name).mkdir()
        tool.write(MODEL, options, tmp_path / name)
        return tool, tmp_path / name, options

    return write


def check(tool, directory, options, scratch):
    capture = scratch / "sources.pcap"
    capture.write_bytes(pcap(LINK_ETHERNET, FRAMES, SPEC.tick_ns, "<"))
    return check_metering(
        tool, directory, unchanged(MODEL), options, packets=300, seed=1, captures=[capture]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["host", "dpdk", "xdp"])
def test_a_capture_gives_what_the_reference_meter_gives(name, exported, tmp_path):
    tool, directory, options = exported(name)
    verification = check(tool, directory, options, tmp_path)
    if verification.missing:
        pytest.skip(verification.missing)
    assert verification.failures == () and verification.flows > 1500
    wanted = reference_flows(unchanged(MODEL), LINK_ETHERNET, FRAMES)
    assert wanted.counters["forgotten"] > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("place_for_source(set);", "0;"),
        ("c.flows - c.answered", "c.flows"),
        ("c.ports |= s->before.ports;", ""),
        ("c.hosts |= s->before.hosts;", ""),
        ("s->begun += passed << METER_SOURCE_WINDOW;", "s->begun = now;"),
        ("s->used = ++set->used;", "if (!s->used) s->used = ++set->used;"),
        ("k->protocol << 16", "0 << 16"),
        ("k->address_bytes == 4 ? 4 : 8", "k->address_bytes"),
    ],
)
def test_a_change_of_the_table_is_found(old, new, exported, tmp_path):
    tool, directory, options = exported("host")
    header = directory / "sources.h"
    text = header.read_text()
    assert text.count(old) == 1
    header.write_text(text.replace(old, new))
    assert check(tool, directory, options, tmp_path).failures


def test_reports_name_the_memory_of_the_table(exported):
    for name in ("host", "xdp"):
        tool, directory, options = exported(name)
        figures = {f.name: f for f in tool.report(MODEL, options, directory).figures}
        assert figures["memory.sources"].value == table_bytes(SPEC.sources) == 2 * 656
