# SPDX-License-Identifier: Apache-2.0
"""The export directory: built, verified in the kernel, and what a change in it does."""

import re
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import ExportError, MissingDependencyError, N3icWarning, UsageError
from n3ic.exporters.xdp import metering, source
from n3ic.exporters.xdp.answer_program import AnswerProgram
from n3ic.exporters.xdp.clang import compile_bpf
from n3ic.exporters.xdp.exported import read_program, read_value
from n3ic.exporters.xdp.network.host import HostNetwork
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.values import layout, value_bytes
from n3ic.exporters.xdp.packing import repack, unpack
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import Window
from n3ic.model.passes import simplify, unchanged
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import boundary_features, verification_vectors
from n3ic.targets.base import exporter as target
from n3ic.targets.directory import export
from n3ic.targets.fuzz_traffic import fuzz_captures
from n3ic.targets.manifest import read_manifest
from n3ic.targets.meter_verification import check_metering
from n3ic.targets.packets import PacketLayout
from n3ic.targets.verification import verify_directory
from tests.support.metering import network, with_needless_parts

SPEC = standard_spec(packets=8)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    place = tmp_path_factory.mktemp("xdp") / "out"
    return export(network(SPEC, shunt=2), "xdp", place, verify=False).path


@pytest.mark.usefixtures("libpcap")
def test_an_export_is_verified_from_packets_to_verdicts(clang, kernel, exported):
    result = verify_directory(exported, vectors=300, record=False)
    assert result.ok, str(result)
    assert "BPF_PROG_TEST_RUN on Linux" in result.executor
    assert "1,000 packets through the meter" in result.executor
    assert result.packets == 300
    assert result.flows > 50
    assert result.edges > 10
    assert result.decided_bits > 0
    figures = {f.name: f.value for f in result.figures}
    assert 1000 < figures["instructions.meter"] < figures["verified.meter"] < 1_000_000


def test_a_program_has_room_for_networks_of_the_trained_shape(compiler, tmp_path):
    """What one network does not need, another one of the same shape and input does."""
    model = with_needless_parts(network(SPEC))
    weights = random_model(model.shape, np.random.default_rng(1), extremes=False)
    other = replace(model, hidden=weights.hidden, output=weights.output)
    small = simplify(model).model
    assert small.hidden[0].n_outputs < 8 and model.input.features[0] not in small.input.features
    with pytest.raises(ExportError):
        value_bytes(structure_of([small]), other)
    out = export(model, "xdp", tmp_path / "out", verify=False).path
    assert read_manifest(out)["simplify"] is False
    pack = (out / "daemon" / "n3icd.pack").read_bytes()
    assert other.digest in unpack(repack(pack, 0, other)).networks
    structure = structure_of([unpack(pack).compiled])
    features = boundary_features(model.input, 0)
    got = HostNetwork.build(structure).run(value_bytes(structure, other), features)
    assert np.array_equal(got.scores, other.infer(other.encode(features)).scores)


def test_a_layer_has_room_to_the_end_of_its_last_word():
    one, wide = (random_model((64, n, 2), np.random.default_rng(n)) for n in (13, 16))
    structure = structure_of([one])
    assert len(value_bytes(structure, wide)) == layout(structure).bytes
    with pytest.raises(ExportError, match="17 outputs, the program has room for 16"):
        value_bytes(structure, random_model((64, 17, 2), np.random.default_rng(1)))


@pytest.mark.slow
@pytest.mark.usefixtures("libpcap")
@pytest.mark.parametrize("table", [pytest.param("lru", marks=pytest.mark.slow), "buckets"])
def test_a_capture_is_replayed_and_compared(clang, kernel, tmp_path, table):
    """Even where the specification's flow cache is too small: there is room for all flows."""
    model = network(replace(SPEC, cache_flows=2), shunt=2)
    path = export(model, "xdp", tmp_path / "out", options={"table": table}, verify=False).path
    made = {c.name: c for c in fuzz_captures(SPEC, 9, 200)}
    (tmp_path / "c.pcap").write_bytes(made["ethernet.pcap"].data)
    verification = verify_directory(path, vectors=50, record=False, captures=[tmp_path / "c.pcap"])
    assert verification.ok, str(verification)
    assert verification.packets == 50 + 200
    assert verification.flows > 50
    (tmp_path / "raw.pcapng").write_bytes(made["raw.pcapng"].data)
    tool, raw = target("xdp"), [tmp_path / "raw.pcapng"]
    options = tool.parse_options({"table": table}, verify=True)
    with pytest.raises(UsageError, match=r"link type 101 \(RAW\); xdp meters 1"):
        check_metering(tool, path, unchanged(model), options, packets=1, seed=0, captures=raw)


@pytest.mark.slow
def test_captures_from_outside_are_replayed_and_compared(clang, kernel, exported, real_data):
    names = ("443-git.pcap", "6in4tunnel.pcap", "fuzz-2006-09-29-28586.pcap")
    paths = [real_data / "pcaps" / name for name in names]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        pytest.skip(f"no {missing} here")
    verification = verify_directory(exported, vectors=50, record=False, captures=paths)
    assert verification.ok, str(verification)


@pytest.mark.slow
def test_verification_names_the_same_buckets_each_time(clang, kernel, tmp_path):
    """What a bucket forgets at one verification it forgets at the next."""
    model = network(SPEC)
    path = export(model, "xdp", tmp_path / "out", options={"table": "buckets"}, verify=False).path
    options = []
    for _ in range(2):
        with metering._metering(path / "meter", model, "buckets", 16) as programs:
            options.append(programs.maps[".rodata.options"].lookup(0))
    assert options[0] == options[1]


@pytest.mark.parametrize(("table", "code"), [("buckets", "struct bucket"), ("lru", "LRU_HASH")])
def test_a_table_is_exported_and_named(exported, tmp_path, table, code):
    """Buckets, which decide what they evict, where nothing is said."""
    path = exported
    if table == "lru":
        options = {"table": table}
        path = export(network(SPEC), "xdp", tmp_path / "out", options=options, verify=False).path
    assert code in read_program(path / "meter")["table.h"]
    assert read_manifest(path)["options"]["table"] == table


@pytest.mark.first_case
@pytest.mark.parametrize("bits", [200, 256, 300])
def test_thresholds_are_read_back_from_sums_of_every_size(clang, kernel, tmp_path, bits):
    """Of one byte, and of two that are halved."""
    model = random_model((bits, 32, 16, 2), np.random.default_rng(bits), extremes=False)
    place = export(model, "xdp", tmp_path / "out", verify=False).path
    result = verify_directory(place, vectors=50, record=False)
    assert result.ok, str(result)


@pytest.mark.slow
@pytest.mark.usefixtures("libpcap")
def test_without_the_kernel_the_same_header_runs_here(exported, monkeypatch, tmp_path):
    def refused(*_):
        raise MissingDependencyError("no clang")

    monkeypatch.setattr(source, "compile_bpf", refused)
    monkeypatch.setattr(metering, "compile_bpf", refused)
    (made, *_) = fuzz_captures(SPEC, 9, 20)
    (tmp_path / "c.pcap").write_bytes(made.data)
    captures = [tmp_path / "c.pcap"]
    result = verify_directory(exported, vectors=300, record=False, captures=captures)
    if result.missing:
        pytest.skip(result.missing)
    assert result.ok, str(result)
    assert "compiled for this host; the kernel ran nothing: no clang" in result.executor
    assert "captures not metered: no clang" in str(result)
    assert not result.packets


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("flow.h", "v = x < v ? x : v;", "v = x <= v + 1 ? x : v;", r"registers is|features is"),
        pytest.param("packet.h", "ip[0] & 15", "5", r"meter\.c: ", marks=pytest.mark.slow),
        pytest.param(
            "meter.c",
            "f->fins == CLOSED",
            "f->fins == 1",
            r"meter\.c: flow",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "windows.h", "g->flows++;", "g->flows += 2;", "features is", marks=pytest.mark.slow
        ),
    ],
)
def test_a_change_of_the_meter_is_found(clang, kernel, tmp_path, file, old, new, message):
    path = export(network(SPEC), "xdp", tmp_path / "out", verify=False).path
    place = path / "meter" / file
    text = place.read_text()
    assert old in text
    place.write_text(text.replace(old, new))
    with pytest.warns(N3icWarning, match="your rights"):
        result = verify_directory(path, vectors=50, record=False, run_changed=True)
    assert not result.ok
    assert len(result.failures) == 2
    assert re.search(message, result.failures[1]), result.failures


@pytest.mark.slow
def test_cuts_are_verified_where_they_lie(clang, tmp_path):
    """One cut of the metering program's network changed, by one."""
    path = export(network(SPEC), "xdp", tmp_path / "out", verify=False).path
    place = path / "meter" / "network.bin"
    value = bytearray(place.read_bytes())
    value[40] ^= 1
    place.write_bytes(value)
    with pytest.warns(N3icWarning, match="your rights"):
        result = verify_directory(path, vectors=50, record=False, run_changed=True)
    assert not result.ok


def test_requests_are_answered_and_nothing_else(clang, kernel, tmp_path):
    model = random_model((37, 9, 3), np.random.default_rng(2), extremes=False).with_shunt(2)
    path = export(model, "xdp", tmp_path / "out", verify=False).path / "answer"
    packets = PacketLayout(37, 3, "both", "", 0x2323, 0)
    words = verification_vectors(model, 400, 0)
    with AnswerProgram(
        source.compile_program(read_program(path), source.ANSWER), "answer.o", packets
    ) as program:
        request = packets.request(5)
        assert program.program.test_run(request).result == 1  # no model yet: dropped
        program.set_model(0, read_value(path))
        got, want = program.ask(words), model.infer(words)
        assert (got.scores == want.scores).all()
        assert (got.verdicts == model.verdicts(want.scores)).all()
        assert set(got.verdicts) >= {-1, 0, 1, 2}
        other = bytes(12) + b"\x08\x00" + bytes(60)
        run = program.program.test_run(other, output=True)
        assert (run.result, run.data) == (2, other)
        assert program.program.test_run(request[:-1]).result == 1  # cut short: dropped
        assert program.counters() == {"answered": 400, "short": 1, "no_model": 1, "other": 1}


def test_objects_are_the_same_from_any_folder(clang, exported):
    files = read_program(exported / "answer")
    # Each option makes another command, so that both are compiled, in folders of two names.
    one, other = (
        compile_bpf(files, source.ANSWER, (*source.OPTIONS, option)) for option in ("-DA", "-DB")
    )
    assert one == other


def test_a_window_of_too_many_flows_is_a_problem(tmp_path):
    spec = standard_spec()
    wide = Window("ct_all", 5000, ("protocol",))
    model = network(replace(spec, windows=(*spec.windows, wide)))
    tool = target("xdp")
    fit = tool.check(model, tool.parse_options({}))
    assert [str(p) for p in fit.problems] == ["window 'ct_all' is over 5,000 flows, at most 1,024"]


def test_more_windows_than_the_verifier_follows_are_refused_before(tmp_path):
    spec = standard_spec()
    more = tuple(Window(f"w{i}", 1024, ("protocol",)) for i in range(21 - len(spec.windows)))
    model = network(replace(spec, windows=(*spec.windows, *more)))
    tool = target("xdp")
    (problem,) = tool.check(model, tool.parse_options({})).problems
    assert "21 windows, the largest over 1,024 flows" in str(problem)
    fewer = replace(spec, windows=(*spec.windows, *more[1:]))
    assert not tool.check(network(fewer), tool.parse_options({})).problems
