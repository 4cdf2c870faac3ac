# SPDX-License-Identifier: Apache-2.0
"""The standard meter beside argus and nDPI: what is equal, and what differences are put down to."""

import struct
from dataclasses import replace

import pytest

from n3ic.errors import DataError, MissingDependencyError
from scripts.meters import argus, ndpi
from scripts.meters.comparison import NOT_EXPLAINED, FlowPair, MeterComparison, reference_flows_of
from tests.support.conversations import conversations
from tests.support.traffic import START, pcap

# What ra 3.0.8.2 says of argus 3.0.8.2's records of the conversations.
RECORDED = """\
head
{0}.000000,6,10.0.0.1,40001,10.0.0.2,80, e        ,0.220000,5,4,470,1293,64,64,13672.727539,35272.726562,36.363636,55.000000,90.000000,0.030007,0.030000,0.000007,94.000000,323.250000,4097,4096
{1}.000000,6,10.0.0.1,40002,10.0.0.2,80, e   t    ,0.220000,5,4,470,1293,64,64,13672.727539,35272.726562,36.363636,55.000000,90.000000,0.000000,0.000000,0.000000,94.000000,323.250000,4097,4096
{2}.000000,6,10.0.0.1,40003,10.0.0.2,80, e        ,0.020000,2,1,158,54,64,64,0.000000,31600.000000,100.000000,10.000000,,0.000000,0.000000,0.000000,79.000000,54.000000,4097,4096
{3}.000000,17,10.0.0.1,40004,10.0.0.2,53, e        ,0.005000,1,1,61,61,64,64,0.000000,0.000000,200.000000,,,0.000000,0.000000,0.000000,61.000000,61.000000,,
{4}.000000,17,10.0.0.1,40004,10.0.0.2,53, e        ,0.005000,1,1,61,61,64,64,0.000000,0.000000,200.000000,,,0.000000,0.000000,0.000000,61.000000,61.000000,,
{5}.000000,17,10.0.0.1,40005,10.0.0.2,999, eU       ,0.020000,1,0,52,0,64,,0.000000,0.000000,0.000000,,,0.000000,0.000000,0.000000,52.000000,0.000000,,
{5}.020000,1,10.0.0.2,0x0303,10.0.0.1,0xe703, e        ,0.000000,1,0,70,0,64,,0.000000,0.000000,0.000000,,,0.000000,0.000000,0.000000,70.000000,0.000000,,
{6}.000000,2054,10.0.0.1,,10.0.0.2,, e        ,0.000000,1,0,42,0,,,0.000000,0.000000,0.000000,,,0.000000,0.000000,0.000000,42.000000,0.000000,,
""".format(*range(START, START + 7))  # noqa: E501
TURNED = "begins with a SYN-ACK: argus turns the flow round"
LOADS = "argus does not swap the loads of a flow that it turns round"
ECN = "the SYN carries ECN flags: argus does not know it"


@pytest.fixture
def capture(tmp_path):
    path = tmp_path / "c.pcap"
    data = bytearray(pcap([(time, frame) for time, frame in conversations()]))
    at = 24
    while at < len(data):  # traffic.pcap adds a check sequence to the length; there is none here
        (size,) = struct.unpack_from("<I", data, at + 8)
        struct.pack_into("<I", data, at + 12, size)
        at += 16 + size
    path.write_bytes(data)
    return path


def not_explained(comparison):
    """Differences for which no reason holds."""
    every = [
        comparison.ours_alone,
        comparison.theirs_alone,
        *(t.why for t in comparison.features.values()),
    ]
    return sum(why[NOT_EXPLAINED] for why in every)


def compared(capture, text=RECORDED):
    comparison = MeterComparison()
    argus.add_argus(comparison, capture, argus.parse_rows(text))
    return comparison


def test_what_argus_has_otherwise_is_put_down_to_its_reason(capture):
    comparison = compared(capture)
    assert (comparison.captures, comparison.ours, comparison.theirs, comparison.pairs) == (
        1,
        6,
        8,
        5,
    )
    assert not_explained(comparison) == 0
    why = {name: dict(tally.why) for name, tally in comparison.features.items() if tally.why}
    assert why == {
        "direction": {TURNED: 1},
        "dur": {"argus counts the time of an ICMP error about the flow to it": 1},
        "sload, dload": {LOADS: 2},
        "sinpkt, dinpkt": {"argus passes over packets that are not later than the one before": 2},
        **{name: {ECN: 1} for name in ("synack", "ackdat", "tcprtt")},
    }
    assert (
        comparison.features["sbytes, dbytes"].compared
        == comparison.features["sbytes, dbytes"].equal
        == 10
    )
    dns = "DNS: argus' key has the transaction number"
    assert comparison.ours_alone == {dns: 1}
    assert comparison.theirs_alone == {dns: 2, "not IP": 1}


@pytest.mark.parametrize(
    ("old", "new", "feature"),
    [
        (",470,1293,64,64,13672.727539", ",471,1293,64,64,13672.727539", "sbytes, dbytes"),
        (",5,4,470", ",5,3,470", "spkts, dpkts"),
        (",64,64,13672.727539", ",63,64,13672.727539", "sttl, dttl"),
        ("0.030007,0.030000,0.000007", "0.030010,0.030000,0.000007", "tcprtt"),
        ("0.030007,0.030000,0.000007", "0.030007,0.030010,0.000007", "synack"),
        ("36.363636", "36.370000", "rate"),
        (",94.000000,323.250000", ",94.600000,323.250000", "smean, dmean"),
        ("55.000000,90.000000,0.030007", "55.002000,90.000000,0.030007", "sinpkt, dinpkt"),
        ("4097,4096", "4098,4096", "swin, dwin"),
        ("0.220000,5", "0.220003,5", "dur"),
    ],
)
def test_a_difference_without_a_reason_is_not_explained(capture, old, new, feature):
    assert old in RECORDED
    comparison = compared(capture, RECORDED.replace(old, new, 1))
    assert comparison.features[feature].why[NOT_EXPLAINED] == 1


def test_records_without_a_flow_are_not_explained(capture):
    ghost = RECORDED.splitlines()[1].replace("40001", "5")
    assert compared(capture, f"{RECORDED}{ghost}\n").theirs_alone[NOT_EXPLAINED] == 1
    gone = "\n".join(line for line in RECORDED.splitlines() if "40001" not in line)
    assert compared(capture, gone).ours_alone[NOT_EXPLAINED] == 1
    assert compared(capture, "head").ours_alone == {"argus does not read the capture": 6}


def test_times_that_go_back_are_told_from_those_that_do_not(tmp_path):
    frames = conversations()
    swapped = [*frames[:2], frames[8], *frames[2:8], *frames[9:]]
    (tmp_path / "c.pcap").write_bytes(pcap(swapped))
    flows, _ = reference_flows_of(tmp_path / "c.pcap", argus.SPEC)
    assert [seen.back for seen in flows].count(True) == 1
    assert all(len(seen.packets) == seen.record.packets for seen in flows)


def test_tables_name_what_was_compared(capture):
    page = compared(capture).markdown("argus", argus.FEATURES)
    assert "| sttl, dttl | of the last packet | 8 | 8 | 100.00 % |  |" in page
    assert f"| direction | source is the sender of the first packet | 5 | 4 | 80.00 % | {TURNED} (1) |" in page  # fmt: skip  # noqa: E501
    assert "Only argus's: DNS: argus' key has the transaction number (2); not IP (1)." in page


def test_argus_says_what_was_recorded(capture):
    """Where argus is installed."""
    try:
        rows = argus.argus_rows(capture)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    assert rows == argus.parse_rows(RECORDED)


def test_what_argus_records_of_itself_is_no_flow(capture):
    """Two records, of its start and its end, where it is not told to write none."""
    rest = ",0,0,0,0,,,0.0,0.0,0.0,,,0.0,0.0,0.0,0.0,0.0,,\n"
    start = "1795362629.057812,man,0,0,0,0,          ,0.000754" + rest
    end = "1795362630.065961,man,0,0,25,1,          ,1.008903" + rest
    head, flows = RECORDED.split("\n", 1)
    text = f"{head}\n{start}{flows}{end}"
    assert argus.parse_rows(text) == argus.parse_rows(RECORDED)
    assert compared(capture, text).theirs == compared(capture).theirs


def test_without_argus_it_says_how_to_get_it(capture, monkeypatch):
    monkeypatch.setattr(argus, "which", lambda name: None)
    with pytest.raises(MissingDependencyError, match="apt-get install argus-server argus-client"):
        argus.compare_argus([capture])


# --- nDPI ------------------------------------------------------------------------------------

HEAD = (
    "pcap,flow,l4,src,sport,dst,dport,c2s_pkts,c2s_bytes,s2c_pkts,s2c_bytes,duration_s,"
    "iat_ms_max_c2s,iat_ms_max_s2c,pktlen_min_c2s,pktlen_min_s2c,pktlen_avg_c2s,pktlen_avg_s2c,"
    "pktlen_max_c2s,pktlen_max_s2c"
)
FLOWS = """\
c.pcap,1,TCP,10.0.0.1,40001,10.0.0.2,80,5,470,4,1293,<1,99,119,54,54,94,323,254,1054
c.pcap,2,TCP,10.0.0.1,40002,10.0.0.2,80,5,550,4,1357,<1,99,119,70,70,110,339,270,1070
c.pcap,3,TCP,10.0.0.2,80,10.0.0.1,40003,1,54,2,158,<1,,,,,,,,
c.pcap,4,UDP,10.0.0.1,40004,10.0.0.2,53,2,122,2,122,1.00,,,,,,,,
c.pcap,5,UDP,10.0.0.1,40005,10.0.0.2,999,1,52,0,0,<1,,,,,,,,
c.pcap,6,ICMP,10.0.0.2,0,10.0.0.1,0,1,70,0,0,<1,,,,,,,,
other.pcap,1,UDP,10.0.0.1,1,10.0.0.2,2,1,1,0,0,<1,,,,,,,,
"""


def test_ndpis_flows(capture, tmp_path):
    (tmp_path / "flows.csv").write_text(f"{HEAD}\n{FLOWS}")
    comparison = ndpi.compare_ndpi([capture], tmp_path / "flows.csv")
    assert (comparison.captures, comparison.ours, comparison.theirs, comparison.pairs) == (
        1,
        6,
        6,
        6,
    )
    link = "nDPI counts the capture's own link header, and no VLAN tag"
    bytes_of = comparison.features["sbytes, dbytes"]
    assert (bytes_of.compared, bytes_of.equal, bytes_of.why) == (12, 10, {link: 2})
    assert comparison.features["direction"].equal == 6
    assert not_explained(comparison) == 0
    (tmp_path / "flows.csv").write_text(f"{HEAD}\n{FLOWS.replace(',4,1293', ',4,1300')}")
    again = ndpi.compare_ndpi([capture], tmp_path / "flows.csv")
    assert again.features["sbytes, dbytes"].why[NOT_EXPLAINED] == 1


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_another_csv_is_refused(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match="is missing"):
        ndpi.ndpi_rows(tmp_path / "x.csv")
    with pytest.raises(DataError, match="cannot be read"):
        ndpi.ndpi_rows(tmp_path / "absent.csv")


@pytest.mark.exhaustive
def test_no_difference_on_real_captures_is_left_unexplained(real_data):
    folder = real_data / "pcaps"
    captures = sorted(p for p in folder.iterdir() if p.suffix in (".pcap", ".pcapng"))
    comparison = ndpi.compare_ndpi(captures, folder / "flows_expected.csv")
    assert comparison.pairs > 3700
    assert not_explained(comparison) == 0
    packets = comparison.features["spkts, dpkts"]
    assert packets.equal > 0.999 * packets.compared
    try:
        comparison = argus.compare_argus(captures)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    assert comparison.pairs > 3800
    assert not_explained(comparison) == 0


def test_a_pair_names_our_side():
    pair = FlowPair(None, {}, turned=False)
    assert (pair.side("s"), replace(pair, turned=True).side("s")) == ("s", "d")
