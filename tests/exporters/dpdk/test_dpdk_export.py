# SPDX-License-Identifier: Apache-2.0
"""The target dpdk where DPDK is not needed: artefacts, what is read back, errors."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import n3ic
from n3ic.errors import MissingDependencyError, UsageError, VerifyError
from n3ic.exporters.dpdk import application, bench
from n3ic.exporters.dpdk.exporter import EXPORTER, DpdkExporter, received
from n3ic.meter.compiled import STAMPS
from n3ic.meter.packet import LINK_ETHERNET, parse
from n3ic.meter.reference import ReferenceMeter
from n3ic.meter.standard import standard_spec
from n3ic.model.random_models import random_model
from n3ic.targets.base import exporter
from n3ic.targets.directory import export
from n3ic.targets.fuzz_traffic import pcap
from n3ic.targets.verification import verify_directory
from tests.support.metered_models import metered_network

MODEL = metered_network(standard_spec(packets=6))


@pytest.fixture
def no_dpdk(monkeypatch):
    monkeypatch.setattr(application, "shutil", SimpleNamespace(which=lambda tool: None))


def test_the_export_is_the_application_around_the_hosts_export(tmp_path):
    done = export(MODEL, "dpdk", tmp_path / "out", verify=False, simplify=False)
    host = tmp_path / "host"
    host.mkdir()
    exporter("host").write(MODEL, {}, host)
    for source in host.iterdir():
        assert (done.path / "host" / source.name).read_bytes() == source.read_bytes()
    sources = {p.name for p in (EXPORTER.folder / "c").iterdir()}
    assert {"main.c", "worker.c", "Makefile"} <= sources <= {p.name for p in done.path.iterdir()}
    readme = (done.path / "README.md").read_text("utf-8")
    assert MODEL.digest in readme and all(f"- `{name}`" in readme for name in ("=a", "d"))


def test_a_network_without_a_meter_is_a_library(tmp_path):
    model = random_model((16, 4, 2), np.random.default_rng(0))
    done = export(model, "dpdk", tmp_path / "out", verify=False)
    assert not (done.path / "main.c").exists()
    assert (done.path / "host" / "bnn.c").exists()
    assert "no application" in (done.path / "README.md").read_text("utf-8")
    with pytest.raises(UsageError, match="no meter"):
        n3ic.bench("dpdk", model)


def test_without_dpdk_the_network_is_verified_and_the_application_is_said_to_be_missing(
    tmp_path, no_dpdk, quick_build
):
    done = export(MODEL, "dpdk", tmp_path / "out", verify=False)
    capture = tmp_path / "c.pcap"
    capture.write_bytes(pcap(LINK_ETHERNET, [(bytes(60), 60, 1)], 1000, "<"))
    verification = verify_directory(done.path, vectors=500, captures=[capture])
    assert verification.ok and verification.packets == 0, str(verification)
    assert "apt-get install dpdk" in verification.unmetered
    assert set(verification.decoded) == {"host/weights.bin", "host/bnn.c"}
    with pytest.raises(MissingDependencyError, match=r"make is not installed: .*libpcap-dev"):
        n3ic.bench("dpdk", MODEL)


def test_a_changed_weight_is_read_back(tmp_path):
    done = export(MODEL, "dpdk", tmp_path / "out", verify=False)
    other = metered_network(standard_spec(packets=6), seed=1)
    host = tmp_path / "other"
    host.mkdir()
    exporter("host").write(other, {}, host)
    (done.path / "host" / "weights.bin").write_bytes((host / "weights.bin").read_bytes())
    verification = verify_directory(done.path, vectors=10)
    assert any("host/weights.bin" in failure for failure in verification.failures)


def test_dpdk_takes_the_families_of_the_host():
    host = exporter("host")
    assert EXPORTER.families == host.families
    for family in EXPORTER.families:
        tool = EXPORTER.for_family(family)
        assert tool.name == "dpdk"
        assert isinstance(tool, DpdkExporter) and tool.host is host.for_family(family)


def test_net_pcap_knows_neither_what_was_cut_off_nor_nanoseconds():
    spec = replace(standard_spec(), tick_ns=100)
    frames = [(b"abc", 1500, 12_345), (b"", 4, 19)]
    assert [*received(frames, spec)] == [(b"abc", 3, 12_340), (b"", 0, 10)]
    assert [*received([(b"a", 1, 7)], replace(spec, tick_ns=10**9))] == [(b"a", 1, 7)]


def statistics(**changes):
    lost = dict.fromkeys(("port_full", "ring_full", "worker_full", "decision_not_written"), 0)
    meter = {"packets": 5, "late": 0, "evicted": 2, "forgotten": 0} | dict.fromkeys(
        (*STAMPS, *application.ASIDE), 0
    )
    return {
        "received": 5,
        "lcores": [{"lcore": 1} | lost],
        "actions": {"pass": 3, "drop": 2},
        "meter": meter,
        "ports": [{"losses": {"imissed": 0, "ierrors": 0, "interface_dropped": 7}}],
    } | changes


def test_a_run_that_lost_packets_shows_nothing():
    counters = application._counters(statistics())
    assert counters == {"packets": 5, "evicted": 2} | dict.fromkeys(STAMPS, 0)
    text = json.dumps(statistics())
    for part in ('"worker_full": 0', '"decision_not_written": 0', '"imissed": 0'):
        assert part in text
        with pytest.raises(VerifyError, match="of 5 packets, 1 were lost"):
            application._counters(json.loads(text.replace(part, part[:-1] + "1")))
    with pytest.raises(VerifyError, match="of 5 packets, 0 were lost"):
        application._counters(statistics(actions={"pass": 3, "drop": 1}))


@pytest.mark.parametrize(("workers", "lcores"), [(1, 2), (2, 4), (3, 5)])
def test_lcores_share_the_processors_that_there_are(workers, lcores, monkeypatch):
    monkeypatch.setattr(application.os, "sched_getaffinity", lambda _: {3, 5})
    first = application.eal_words(workers)[0]
    places = [place.split("@") for place in first.removeprefix("--lcores=").split(",")]
    assert [int(lcore) for lcore, _ in places] == [*range(lcores)]
    assert {cpu for _, cpu in places} == {"3", "5"}


@pytest.mark.parametrize(
    ("free", "mounted", "used"),
    [(256, "hugetlbfs", True), (255, "hugetlbfs", False), (256, "tmpfs", False)],
)
def test_huge_pages_are_used_if_enough_are_free_and_mounted(free, mounted, used, tmp_path):
    (tmp_path / "mounts").write_text(f"none /dev/hugepages {mounted} rw 0 0\n")
    lines = f"HugePages_Total:     300\nHugePages_Free:      {free}\nHugepagesize:       2048 kB\n"
    (tmp_path / "meminfo").write_text(lines)
    assert bench.has_huge_pages(tmp_path) is used
    assert ("--no-huge" in application.eal_words(1, huge_pages=used)) is not used


def test_the_measured_traffic_is_connections_from_syn_to_fin():
    spec = standard_spec(packets=0)
    frames = [*bench.connections(5).each()]
    meter = ReferenceMeter(spec)
    flows = [*meter.run(parse(LINK_ETHERNET, *frame, spec.tunnels) for frame in frames)]
    assert [(f.decided, f.packets) for f in flows] == [("fin", bench.PACKETS)] * 5
    again = [*ReferenceMeter(spec).run(parse(LINK_ETHERNET, *f, spec.tunnels) for f in frames * 2)]
    assert len(again) == 10  # a replay begins new flows
