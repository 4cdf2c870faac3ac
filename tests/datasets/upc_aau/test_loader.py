# SPDX-License-Identifier: Apache-2.0
"""Captures and .info files in the format of UPC-AAU: read, moved about, damaged."""

import gzip
import json
import os

import numpy as np
import pyarrow.parquet
import pytest

from n3ic.data.dataset import data_set_of
from n3ic.data.split import protocols_of
from n3ic.datasets.iscx_tor2016 import USECASE
from n3ic.datasets.upc_aau import DATASET, SYNTHETIC, extraction, loader
from n3ic.datasets.upc_aau.classes import CLASSES
from n3ic.datasets.upc_aau.frames import Packets, write_pcap
from n3ic.datasets.upc_aau.synthetic import CAPTURE, INFO, OTHER, generate, write_data
from n3ic.errors import DataError, UsageError
from n3ic.meter import stream as steps
from n3ic.meter.packet import SYN
from n3ic.meter.spec_file import write_spec
from n3ic.meter.standard import standard_spec
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory

FLOWS = 400


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr("n3ic.util.cache.user_cache_path", lambda *_, **__: folder)
    return folder / "upc_aau"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("upc") / "data", FLOWS, 3)


@pytest.fixture
def data(made, tmp_path):
    """A copy of the generated folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in (CAPTURE, INFO):
        (folder / name).write_bytes((made / name).read_bytes())
    return folder


def rewrite(folder, change):
    """Change the fields of every line."""
    lines = (folder / INFO).read_text().splitlines()
    text = "".join("#".join(change(line.split("#"))) + "\n" for line in lines)
    (folder / INFO).write_text(text)


# --- what is read ----------------------------------------------------------------------------


@pytest.mark.slow
def test_flows_are_also_read_as_sequences_of_their_first_packets(made):
    flows, packets, labels = generate(FLOWS, 3)
    table = SYNTHETIC.load_at(made, (4,))
    assert table.meter.decision.packets == 4
    start = np.full(FLOWS, 2**62)
    np.minimum.at(start, packets.flow, packets.time)
    order = [i for i in np.argsort(start, kind="stable") if labels[i] in CLASSES]
    assert [table.classes[i] for i in table.label] == [labels[i] for i in order]
    headers = np.where(flows.udp, 28, 40) + 20 * flows.version_6
    for row, flow in enumerate(order):
        own = np.flatnonzero(packets.flow == flow)[:4]
        turned = packets.outbound[own] != packets.outbound[own[0]]
        # A SYN has an option of four bytes.
        size = packets.payload[own] + headers[flow] + 4 * ((packets.flags[own] & SYN) > 0)
        want = [2048 + int(-n if back else n) for n, back in zip(size, turned, strict=True)]
        got = [int(table.features[f"len_{k}"][row]) for k in range(1, 5)]
        assert got == want + [0] * (4 - len(want))


@pytest.mark.slow
def test_a_schedule_of_packets_has_a_row_for_each(made):
    table = SYNTHETIC.load_at(made, (2, 8))
    assert {*table.point.tolist()} == {0, 2, 8}
    assert len(np.unique(table.flow)) < len(table)
    with pytest.raises(UsageError, match=r"1\.\.32"):
        SYNTHETIC.load_at(made, (8, 2))


@pytest.mark.slow
def test_every_flow_gets_its_line(made):
    """What the generator knows of each conversation is what the loader finds."""
    loaded = loader.load(made)
    flows, packets, labels = generate(FLOWS, 3)
    table = loaded.table
    assert loaded.extraction.flows == FLOWS
    assert loaded.extraction.counters["packets"] == len(packets.time)
    assert loaded.joined["unmatched"] == labels.count("") > 0
    assert loaded.joined["ambiguous"] == 0
    assert not loaded.info.bad
    start = np.full(FLOWS, 2**62)
    np.minimum.at(start, packets.flow, packets.time)
    order = [i for i in np.argsort(start, kind="stable") if labels[i] in CLASSES]
    assert [table.classes[i] for i in table.label] == [labels[i] for i in order]
    assert list(table.classes) == [c for c in CLASSES if c in labels]
    counts = np.bincount(packets.flow, minlength=FLOWS)[order]
    both = table.features["spkts"] + table.features["dpkts"]
    udp = flows.udp[order]
    assert (both[udp] == counts[udp]).all()
    assert table.meter == standard_spec()
    assert {*protocols_of(table)} == {"random", "time", "conversation"}
    assert table.sha256 == loader.load(made).table.sha256


@pytest.mark.slow
def test_what_is_synthetic_says_so(made, data):
    table = DATASET.load(made)
    assert (table.name, table.synthetic) == ("upc-aau-synthetic", True)
    assert table.notes[0].startswith("SYNTHETIC")
    assert SYNTHETIC.load(made).sha256 == table.sha256
    rewrite(data, lambda cells: [*cells[:8], "Linux", *cells[9:]])
    real = DATASET.load(data)
    assert (real.name, real.synthetic) == ("upc-aau", False)
    assert np.array_equal(real.label, table.label)
    with pytest.raises(DataError, match="not synthetic; read them as upc-aau"):
        SYNTHETIC.load(data)


@pytest.mark.slow
def test_nothing_is_embedded_and_the_stand_in_is_made():
    with pytest.raises(UsageError, match=r"on request.*upc-aau-synthetic"):
        DATASET.load()
    table = SYNTHETIC.load()
    assert table.synthetic
    assert len(table) > 5500
    assert table.classes == tuple(CLASSES)
    assert all("/" not in source.path for source in table.sources)


def test_a_folder_is_recognised_and_its_report_kept(data):
    assert data_set_of(data) is DATASET
    facts = DATASET.check(data)
    assert facts["label_field"] == 9
    assert facts["flows"] == FLOWS
    assert any("field 9 of packets_default.info" in problem for problem in facts["problems"])
    assert any(OTHER in problem for problem in facts["problems"])
    json.dumps(facts)


@pytest.mark.slow
def test_another_meter(data):
    write_spec(standard_spec(packets=2), data / "meter.json")
    table = DATASET.load(data)
    assert table.features["spkts"].max() <= 2
    assert table.meter == standard_spec(packets=2)


def cut_in_two(data):
    flows, packets, _ = generate(FLOWS, 3)
    cut = len(packets.time) // 2
    for name, part in ((f"{CAPTURE}00", slice(cut)), (f"{CAPTURE}01", slice(cut, None))):
        with (data / name).open("wb") as stream:
            write_pcap(stream, flows, Packets(*(x[part] for x in vars(packets).values())))
    (data / CAPTURE).unlink()
    return packets


def test_pieces_of_a_capture_and_packed_files(data):
    packets = cut_in_two(data)
    (data / f"{INFO}.gz").write_bytes(gzip.compress((data / INFO).read_bytes()))
    (data / INFO).unlink()
    loaded = loader.load(data)
    assert loaded.extraction.counters["packets"] == len(packets.time)
    assert len(loaded.table.sources) == 3
    assert loaded.extraction.flows == FLOWS  # those across the pieces are one
    assert any("2 captures were taken for pieces of one" in note for note in loaded.table.notes)


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("stop", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 8))])
def test_what_is_interrupted_goes_on_where_it_stopped(data, monkeypatch, pieces, stop):
    want = DATASET.load(data)
    if pieces == 2:
        cut_in_two(data)
    else:
        os.utime(data / CAPTURE)  # not the entry of before
    monkeypatch.setattr(steps, "BATCH_PACKETS", 500)
    monkeypatch.setattr(steps, "STEP_PACKETS", 1500)
    real, batches = steps.flow_table, []

    def stopped(*given):
        batches.append(1)
        if len(batches) == stop * 3 + 2:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(steps, "flow_table", stopped)
    with pytest.raises(KeyboardInterrupt):
        DATASET.load(data)
    monkeypatch.setattr(steps, "flow_table", real)
    loaded = loader.load(data)
    assert loaded.extraction.passed == 1500 * stop
    assert loaded.extraction.flows == FLOWS
    assert loaded.table.sha256 == want.sha256


def test_at_most_so_many_of_a_class_spread_over_time(data):
    whole = DATASET.load(data)
    (data / "upc-aau.toml").write_text("flows_per_class = 5\n")
    table = DATASET.load(data)
    assert np.bincount(table.label).tolist() == [5] * 10
    assert any("5 of" in note and "spread evenly" in note for note in table.notes)
    assert {*table.features["dur"].tolist()} <= {*whole.features["dur"].tolist()}


# --- what is not known of the file -----------------------------------------------------------


@pytest.mark.parametrize("field", [7, 8, 12])
def test_the_label_is_found_wherever_it_stands(data, field):
    want = DATASET.load(data)

    def moved(cells):
        label = cells[9].replace("-", "_").upper()
        cells[9], cells[field] = cells[field], label
        return cells

    rewrite(data, moved)
    table = DATASET.load(data)
    assert np.array_equal(table.label, want.label)
    assert any(f"field {field} of" in note for note in table.notes)
    assert any("these lines match any" in note for note in table.notes) == (field == 7)


def test_of_two_fields_with_classes_the_fuller_is_taken_and_the_other_named(data):
    rewrite(data, lambda cells: [*cells[:11], "dns" if cells[9] == "dns" else "", ""])
    table = DATASET.load(data)
    assert any(note.startswith("field 11 holds classes, too, in") for note in table.notes)
    assert len(table.classes) == 10


def test_labels_that_nobody_knows_are_not_guessed(data):
    want = DATASET.load(data).against_rest("rdp")
    rewrite(data, lambda cells: [*cells[:9], f"{cells[9]}.exe", *cells[10:]])
    with pytest.raises(DataError, match=r"field 9: .*\.exe .*upc-aau\.toml"):
        DATASET.load(data)
    (data / "upc-aau.toml").write_text('label_field = 9\n[classes]\n"RDP.exe" = "rdp"\n')
    table = DATASET.load(data)
    assert table.classes == ("rdp",)
    assert len(table) == want.label.sum()
    assert any("upc-aau.toml says that field 9" in note for note in table.notes)
    (data / "upc-aau.toml").write_text("label_field = 8\n")
    with pytest.raises(DataError, match="expected one of the classes in field 8"):
        DATASET.load(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label = 9\n", "unknown key 'label', expected one of label_field"),
        ("label_field = -1\n", "a whole number, got -1"),
        ("label_field = true\n", "a whole number, got True"),
        ("classes = 5\n", "names the class of each label"),
        ("[classes]\n", "names the class of each label"),
        ("[classes]\na = 1\n", "names the class of each label"),
        ("label_field", "cannot be read"),
        ("\xff", "cannot be read"),
    ],
)
def test_damaged_settings_are_refused(data, text, message):
    (data / "upc-aau.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        DATASET.load(data)


def test_a_protocol_that_is_not_said_holds_for_any(data):
    want = DATASET.load(data)
    rewrite(data, lambda cells: [*cells[:7], "?", *cells[8:]])
    assert np.array_equal(DATASET.load(data).label, want.label)
    rewrite(data, lambda cells: [*cells[:7], "17", *cells[8:]])
    assert 0 < loader.load(data).joined["matched"] < len(want)


# --- damaged and hostile files ---------------------------------------------------------------


def test_damaged_lines_are_counted_by_reason_and_never_guessed(data):
    lines = (data / INFO).read_text().splitlines()
    cells = lines[0].split("#")

    def with_cell(i, text):
        return "#".join([*cells[:i], text, *cells[i + 1 :]])

    bad = {
        "fewer than 8 fields": ["#".join(cells[:7]), "\0\0", lines[1][:30]],
        "a time is invalid, or not in microseconds since 1970": [with_cell(1, "x")],
        "an address is invalid": [with_cell(4, "999.1.1.1"), with_cell(3, "::g")],
        "a port is invalid": [with_cell(5, "70000")],
        "ends before it starts": [with_cell(2, "1361750400000000")],
        "longer than 64 KiB": [lines[0] + "#" * (1 << 16)],
        "no label": [with_cell(9, " "), "#".join(cells[:8])],
    }
    mixed = [line for bad_lines in bad.values() for line in bad_lines]
    want = DATASET.load(data)
    text = "\r\n".join([*mixed, "", *lines, lines[2][:50]])  # the last line is cut
    (data / INFO).write_bytes(text.encode() + b"\xff\xfe")
    loaded = loader.load(data)
    counted = {reason: len(bad_lines) for reason, bad_lines in bad.items()}
    counted["fewer than 8 fields"] += 1
    assert loaded.info.bad == counted
    assert loaded.info.lines == len(mixed) + len(lines) + 1
    assert loaded.table.sha256 == want.sha256
    for reason, count in counted.items():
        assert any(f"{count:,} of" in note and reason in note for note in loaded.table.notes)


def test_flows_of_which_lines_say_different_things_are_left_out(data):
    lines = (data / INFO).read_text().splitlines()
    first = next(line for line in lines if "#ssh#" in line).split("#")
    swapped = [*first[:3], first[4], first[3], first[6], first[5], *first[7:9], "rdp", *first[10:]]
    want = loader.load(data)
    (data / INFO).write_text("\n".join([*lines, "#".join(swapped)]))
    loaded = loader.load(data)
    assert loaded.joined["ambiguous"] == 1
    assert len(loaded.table) == len(want.table) - 1
    (data / INFO).write_text("\n".join([*lines, "#".join(first)]))  # the same, said twice
    assert loader.load(data).joined["ambiguous"] == 0


@pytest.mark.parametrize(
    ("remove", "add", "message"),
    [
        ((INFO,), {}, "expected one file that ends in .info, got none"),
        ((), {"b.info": b"x"}, "got b.info, packets_default.info"),
        ((CAPTURE,), {"x.pcap": b"no capture"}, "expected a capture"),
        ((INFO,), {"x.info": b""}, "expected one of the classes"),
        ((CAPTURE,), {CAPTURE: b"\xd4\xc3\xb2\xa1"}, "not a capture that libpcap reads"),
    ],
)
def test_what_a_folder_lacks_is_said(data, remove, add, message):
    for name in remove:
        (data / name).unlink()
    for name, content in add.items():
        (data / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        DATASET.load(data)
    with pytest.raises(DataError, match="no such file or folder"):
        DATASET.load(data / "absent")


def test_labels_of_other_traffic_match_nothing(data):
    rewrite(data, lambda cells: [*cells[:4], "192.0.2.1", *cells[5:]])
    with pytest.raises(DataError, match=r"none of the 400 flows .* same traffic\?"):
        DATASET.load(data)


# --- the cache -------------------------------------------------------------------------------


def test_captures_are_metered_once(data, own_cache, monkeypatch):
    want = DATASET.load(data)
    (entry,) = own_cache.glob("*.parquet")
    monkeypatch.setattr(extraction, "extract_stream", None)
    again = loader.load(data)
    assert again.cached
    assert again.table.sha256 == want.sha256
    rewrite(data, lambda cells: [*cells[:9], "rdp", *cells[10:]])  # other labels, the same flows
    assert loader.load(data).table.classes == ("rdp",)
    assert [*own_cache.glob("*.parquet")] == [entry]


@pytest.mark.slow
def test_the_entry_of_another_capture_or_meter_is_not_taken(data, own_cache):
    DATASET.load(data)
    content = bytearray((data / CAPTURE).read_bytes())
    content[60:66] = bytes(6)
    (data / CAPTURE).write_bytes(content)
    assert not loader.load(data).cached
    write_spec(standard_spec(packets=2), data / "meter.json")
    assert not loader.load(data).cached
    assert len([*own_cache.glob("*.parquet")]) == 3


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_a_damaged_or_foreign_entry_is_made_anew(data, own_cache, suffix):
    want = DATASET.load(data)
    (entry,) = own_cache.glob(f"*{suffix}")
    entry.write_bytes(b"{") if suffix == ".json" else entry.chmod(0o666)
    again = loader.load(data)
    assert not again.cached
    assert again.table.sha256 == want.sha256


def test_an_interrupted_extraction_leaves_no_entry(data, own_cache, monkeypatch):
    real = extraction.extract_stream

    def stopped(*given, **named):
        real(*given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(extraction, "extract_stream", stopped)
    with pytest.raises(KeyboardInterrupt):
        DATASET.load(data)
    monkeypatch.setattr(extraction, "extract_stream", real)
    assert not loader.load(data).cached
    (entry,) = own_cache.glob("*.parquet")
    assert pyarrow.parquet.read_table(entry).num_rows == FLOWS


# --- networks --------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_the_papers_shape_trains_exports_and_verifies(tmp_path):
    table = SYNTHETIC.load()
    recipe = USECASE.recipes["paper-meter"].with_options({"epochs": 6})
    result = train(Experiment(table, recipe, name="classification", with_baselines=False))
    assert result.model.shape == (256, 256, 256, 10)
    assert result.model.meter == standard_spec()
    assert result.test.accuracy > 0.3  # the majority class has 12.6 %
    out = export(result.model, "host", tmp_path / "export", verify=False)
    verification = verify_directory(out.path, vectors=50, rows=table.rows(np.arange(40)).features)
    if verification.missing:
        pytest.skip(verification.missing)
    assert verification.ok, str(verification)


@pytest.mark.slow
def test_bittorrent_against_the_rest():
    table = USECASE.tasks(SYNTHETIC.load(), {"positive": "bittorrent"})[""]
    assert table.classes == ("not bittorrent", "bittorrent")
    recipe = USECASE.recipes["default"].with_options({"encoding": "quantile", "epochs": 3})
    result = train(Experiment(table, recipe, name="classification", with_baselines=False))
    assert result.test.accuracy > 0.8  # three quarters are none
