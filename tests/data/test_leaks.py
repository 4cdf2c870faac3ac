# SPDX-License-Identifier: Apache-2.0
"""Columns of other people's tables: leaks are left out or doubted, measurements stay."""

import numpy as np
import pytest
from typer.testing import CliRunner

from n3ic.cli.main import command_line
from n3ic.data.column_profile import column_names
from n3ic.data.column_roles import role_of
from n3ic.data.user_table import describe
from tests.support.public_layouts import LAYOUTS, leak, made

pd = pytest.importorskip("pandas", reason="needs pandas (pip install 'n3ic[train]')")

# Headers of public layouts: what stays, and after the bar what leaks; cells separated by commas.
OTHERS = {
    "CTU-13": "Dur,Proto,Dir,State,sTos,dTos,TotPkts,TotBytes,SrcBytes"
    "|StartTime,SrcAddr,Sport,DstAddr,Dport,Label",
    "Kyoto 2006+": "Duration,Service,Source_bytes,Destination_bytes,Count,Same_srv_rate,"
    "Serror_rate,Dst_host_count,Dst_host_same_src_port_rate,Flag,Protocol"
    "|IDS_detection,Malware_detection,Ashula_detection,Label,Source_IP_Address,"
    "Source_Port_Number,Destination_IP_Address,Destination_Port_Number,Start_Time",
    "MAWILab": "packets,bytes|anomalyID,srcIP,srcPort,dstIP,dstPort,taxonomy,heuristic,nbDetectors",
    "CSE-CIC-IDS2018": "Protocol,Flow Duration,Tot Fwd Pkts,SYN Flag Cnt,Down/Up Ratio"
    "|Dst Port,Timestamp,Label",
    "UNSW-NB15 raw": "proto,state,dur,sbytes,sloss,service,Sload,ct_srv_src,is_sm_ips_ports"
    "|srcip,sport,dstip,dsport,Stime,Ltime,sttl,attack_cat,Label",
    "N-BaIoT": "MI_dir_L5_weight,MI_dir_L5_mean,HH_L5_magnitude,HH_L5_radius,HH_L5_covariance,"
    "HH_L5_pcc|device,attack,class",
    "IoT-23": "proto,service,duration,orig_bytes,conn_state,history,orig_ip_bytes"
    "|ts,uid,id.orig_h,id.orig_p,id.resp_h,id.resp_p,tunnel_parents,label,detailed-label",
    "CIC-IoT-2023": "flow_duration,Header_Length,Protocol Type,Rate,Srate,fin_flag_number,"
    "syn_count,HTTP,HTTPS,DNS,Tot sum,Min,Max,AVG,IAT,Number,Magnitue,Weight|label",
    "LITNET-2020": "td,pr,_flag1,fwd,stos,ipkt,ibyt,opkt,obyt"
    "|ID,ts_year,ts_month,ts_day,ts_hour,ts_min,ts_second,te_hour,te_second,sa,da,sp,dp,_in,_out,"
    "sas,das,nh,ismc,odmc,svln,dvln,ra,exid,tr,tcp_dst_p,attack_t,attack_a",
    "WUSTL-IIoT": "Mean,SrcPkts,SrcBytes,sTos,SAppBytes,TotAppByte,SynAck,RunTime,SrcJitAct"
    "|StartTime,LastTime,SrcAddr,DstAddr,Sport,Dport,sTtl,sIpId,dIpId,Target,Traffic",
    "AWID": "frame.time_delta,frame.len,frame.cap_len,wlan.fc.type_subtype,wlan.duration,wlan.frag"
    "|frame.time_epoch,frame.time_relative,frame.number,radiotap.mactime,radiotap.channel.freq,"
    "radiotap.dbm_antsignal,wlan.ra,wlan.da,wlan.ta,wlan.sa,wlan.bssid,wlan.seq,wlan.fcs,"
    "wlan.wep.iv,wlan.wep.icv,class",
    "BoT-IoT, all features": "Pkts_P_State_P_Protocol_P_DestIP,TnP_Per_Dport,"
    "AR_P_Proto_P_SrcIP,AR_P_Proto_P_Dport,N_IN_Conn_P_SrcIP,state_number,flgs_number"
    "|pkSeqID,Stime,Ltime,seq,saddr,sport,attack,category,subcategory",
    "any spelling": "Time Delta,Total Time,packets_per_second,bytes per hour,num_ports"
    "|Src Pt,Scr_port,Source Port Number,SourcePort,First Packet Time,LAST SEEN,Begin,hour,"
    "Minute,Day of Week,Dataset Name,capture file,difficulty level,Inbound,SimillarHTTP,"
    "tcp.seq_raw,ip.checksum,TCP Stream,class1,class_3,Attack Category,traffic",
}


def described(folder, frame, label):
    path = folder / "flows.csv"
    frame.to_csv(path, index=False)
    return describe(path, label, beside=False)


def used(own, facts):
    """Headers of the columns that are used, without blanks around."""
    headers = {f.name: f.header.strip() for f in facts}
    return {headers[name] for name, entry in own.toml["columns"].items() if entry["use"]}


@pytest.mark.first_case
@pytest.mark.parametrize("true", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_leak_of_a_public_layout_is_left_out_and_nothing_else(tmp_path, name, true):
    layout = LAYOUTS[name]
    own, facts = described(tmp_path, made(name, true=true), layout.label)
    assert used(own, facts) == {*layout.numbers, *layout.texts}


@pytest.mark.parametrize("layout", OTHERS)
def test_names_of_other_layouts(layout):
    stays, leaks = ([*part.split(",")] for part in OTHERS[layout].split("|"))
    roles = {name: role_of(name)[0] for name in column_names([*stays, *leaks])}
    assert [n for n in column_names(stays) if roles[n] not in ("feature", "root")] == []
    assert [n for n in column_names(leaks) if roles[n] in ("feature", "root")] == []


@pytest.mark.first_case
@pytest.mark.parametrize("name", LAYOUTS)
def test_under_other_names_no_leak_is_used_in_silence(tmp_path, name):
    layout = LAYOUTS[name]
    spelled = {column: f"x{i}q" for i, column in enumerate(layout.leaks)}
    own, _ = described(tmp_path, made(name).rename(columns=spelled), layout.label)
    entries = {column: own.toml["columns"][hidden] for column, hidden in spelled.items()}
    silent = [column for column, entry in entries.items() if entry["use"] and "doubt" not in entry]
    assert silent == []
    kinds = {layout.leaks[c] for c, entry in entries.items() if entry["use"]}
    assert kinds <= {"codes", "number"}  # numbers that may be measurements


def plain(rows=2000, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, rows)
    return rng, label, {"bytes": rng.integers(40, 1500, rows), "pkts": rng.integers(1, 40, rows)}


def reasons(own):
    return {name: entry["reason"] for name, entry in own.toml["columns"].items()}


def test_a_measurement_that_the_label_tells_or_that_tells_the_label_stays(tmp_path):
    rng, _, table = plain()
    label = rng.integers(0, 3, 2000)
    table |= {
        "proto": np.array(["TCP", "UDP", "UDP"])[label],  # the label determines it
        "history": np.array(["ShADadFf", "Dd", "D"])[label],
        "conn_state": np.array(["SF", "S0", "OTH"])[label],
        "land": (label == 2).astype(int),
        "syn": label,
        "orig_ip_bytes": 100 * label + 40,
        "dur": label * 2.5,
        "label": np.array(["web", "voip", "dns"])[label],
    }
    own, facts = described(tmp_path, pd.DataFrame(table), "label")
    assert used(own, facts) == {*table} - {"label"}
    doubts = {n for n, entry in own.toml["columns"].items() if "doubt" in entry}
    assert doubts == {"history", "conn_state", "syn", "orig_ip_bytes", "dur"}
    assert own.toml["columns"]["dur"]["doubt"] == (
        "alone it tells the classes to 100.0% (balanced accuracy)"
    )


def test_a_text_that_determines_the_label_is_another_form_of_it(tmp_path):
    _, label, table = plain()
    finer = np.arange(2000) % 5 + 5 * label
    table |= {
        "what": [f"kind {k}" for k in finer],
        "number": finer,
        "label": np.array(["a", "b"])[label],
    }
    own, _ = described(tmp_path, pd.DataFrame(table), "label")
    assert reasons(own)["what"] == "by its values another form of the label"
    assert own.toml["columns"]["number"]["use"]


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (lambda rng, rows: np.sort(rng.integers(0, 10**6, rows)), "goes up along the file"),
        (lambda rng, rows: rng.permutation(rows) + 7, "counts the rows"),
        (lambda rng, rows: rng.integers(0, 2**16, rows), "random bits"),
        (lambda rng, rows: rng.integers(0, 2**32, rows) * (rng.random(rows) < 0.5), "random bits"),
        (lambda rng, rows: rng.integers(32768, 61000, rows), "random bits"),
        (lambda rng, rows: np.arange(rows) * 4 // rows, "stays the same over stretches"),
        (lambda rng, rows: [f"day{i * 4 // rows}" for i in range(rows)], "stays the same over"),
        (lambda rng, rows: [hex(i) for i in rng.integers(0, 40, rows)], "hexadecimal"),
        (lambda rng, rows: [f"{h}:30" for h in rng.integers(0, 9, rows)], "a time"),
        (lambda rng, rows: [f"Jan {d}, 2020 09:00:01" for d in rng.integers(1, 9, rows)], "a time"),
    ],
)
def test_values_show_a_time_a_counter_a_capture_or_random_bits(tmp_path, column, says):
    rng, label, table = plain()
    table |= {"q": column(rng, 2000), "label": label}
    own, _ = described(tmp_path, pd.DataFrame(table), "label")
    assert says in reasons(own)["q"]
    assert not own.toml["columns"]["q"]["use"]


@pytest.mark.parametrize(
    "column",
    [
        lambda rng, rows: rng.poisson(9, rows),
        lambda rng, rows: rng.gamma(2, 9000, rows).astype(int),
        lambda rng, rows: rng.integers(0, 1500, rows),
        lambda rng, rows: rng.random(rows).round(6),
        lambda rng, rows: np.where(rng.random(rows) < 0.99, 0, rng.integers(0, 9, rows)),
        lambda rng, rows: rng.choice(["x", "y", "z"], rows),
    ],
)
def test_ordinary_values_show_nothing(tmp_path, column):
    rng, label, table = plain()
    table |= {"q": column(rng, 2000), "label": label}
    own, _ = described(tmp_path, pd.DataFrame(table), "label")
    assert own.toml["columns"]["q"]["use"]
    assert "doubt" not in own.toml["columns"]["q"]


def test_a_table_sorted_by_a_measurement_keeps_it_in_doubt(tmp_path):
    _, label, table = plain()
    table = pd.DataFrame({**table, "label": label}).sort_values("bytes")
    own, _ = described(tmp_path, table, "label")
    assert own.toml["columns"]["bytes"]["use"]
    assert "goes up along the file" in own.toml["columns"]["bytes"]["doubt"]


def test_describe_shows_what_is_in_doubt(tmp_path):
    _, label, table = plain()
    pd.DataFrame({**table, "gap": 7 * label, "label": label}).to_csv(tmp_path / "t.csv")
    words = ["data", "describe", str(tmp_path / "t.csv"), "--label", "label"]
    shown = CliRunner().invoke(command_line(words), words).stdout
    (line,) = (row for row in shown.splitlines() if "│ gap " in row)
    assert "in doubt" in line and "to 100.0%" in line
    again = describe(tmp_path / "t.csv", "label")[0]  # by the columns.toml that it wrote
    assert "to 100.0%" in again.toml["columns"]["gap"]["doubt"]


def test_a_field_with_a_word_for_absence_and_one_text_is_a_category(tmp_path):
    rng, label, table = plain()
    table |= {
        "ssl_version": rng.choice(["-", "TLSv12"], 2000),
        "http_method": rng.choice(["0", "0.0", "GET"], 2000),
        "service": [f"service {i}" for i in rng.integers(0, 70, 2000)],
        "label": label,
    }
    own, _ = described(tmp_path, pd.DataFrame(table), "label")
    kinds = {own.toml["columns"][n]["kind"] for n in ("ssl_version", "http_method", "service")}
    assert kinds == {"category"}


def test_every_kind_of_leak_tells_the_classes():
    label = np.random.default_rng(1).integers(0, 3, 500)
    for kind in {kind for layout in LAYOUTS.values() for kind in layout.leaks.values()}:
        values = pd.Series(leak(kind, label, np.random.default_rng(2))).astype(str)
        shares = pd.crosstab(values, label, normalize="index").max(axis=1)
        assert shares.mean() > 0.6, kind


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("path", "label", "stays"),
    [
        ("unsw_iot/unsw-iot-workload1.csv", "DeviceName", "proto dur srcbytes dstbytes tcprtt"),
        (
            "cic_ids2017/cic-ids2017-workload2.csv.xz",
            "attack_cat",
            "protocol flow_duration syn_flag_count total_fwd_packets init_win_bytes_forward",
        ),
        (
            "iscx_tor2016/Scenario-B-merged_5s.csv.xz",
            "label",
            "flow_duration flow_bytes_s idle_mean",
        ),
    ],
)
def test_real_files_keep_their_measurements(real_data, path, label, stays):
    own, _ = describe(real_data / path, label, beside=False)
    entries = own.toml["columns"]
    assert [name for name in stays.split() if not entries[name]["use"]] == []
    values = ("form of the label", "random bits", "along the file", "over stretches")
    assert [n for n, e in entries.items() if any(v in e["reason"] for v in values)
            and "by its name" not in e["reason"]] == []  # fmt: skip
