# SPDX-License-Identifier: Apache-2.0
"""Made tables in the layouts of public data sets: measurements, and the columns that leak.

In tables of noise, the leaks alone tell the classes apart. In true tables, the measurements do,
too.
"""

from dataclasses import dataclass

import numpy as np
import pytest

ROWS = 3000


@dataclass(frozen=True)
class Layout:
    """A layout of a public data set.

    Attributes:
        label: column of the class.
        classes: its classes.
        leaks: how each leak is made, by column; see :func:`leak`.
        numbers: measurements, numbers.
        texts: measurements, each with its texts.
    """

    label: str
    classes: tuple[str, ...]
    leaks: dict[str, str]
    numbers: tuple[str, ...]
    texts: dict[str, tuple[str, ...]]


def words(text):
    return tuple(part.strip() for part in text.split(","))


PROTO = ("tcp", "udp", "icmp")
SERVICES = tuple(f"svc_{i}" for i in range(70))
NSL_KDD = words(
    "duration, src_bytes, dst_bytes, land, wrong_fragment, urgent, hot, num_failed_logins, "
    "logged_in, num_compromised, root_shell, su_attempted, num_root, num_file_creations, "
    "num_shells, num_access_files, num_outbound_cmds, is_host_login, is_guest_login, count, "
    "srv_count, serror_rate, srv_serror_rate, rerror_rate, srv_rerror_rate, same_srv_rate, "
    "diff_srv_rate, srv_diff_host_rate, dst_host_count, dst_host_srv_count, "
    "dst_host_same_srv_rate, dst_host_diff_srv_rate, dst_host_same_src_port_rate, "
    "dst_host_srv_diff_host_rate, dst_host_serror_rate, dst_host_srv_serror_rate, "
    "dst_host_rerror_rate, dst_host_srv_rerror_rate"
)

LAYOUTS = {
    "CIDDS-001": Layout(
        "class",
        ("normal", "attacker", "victim"),
        {
            "Date first seen": "time",
            "Src IP Addr": "address",
            "Src Pt": "port",
            "Dst IP Addr": "address",
            "Dst Pt": "port",
            "attackType": "kinds",
            "attackID": "number",
            "attackDescription": "text",
        },
        words("Duration, Packets, Bytes, Tos"),
        {"Proto": PROTO, "Flags": (".A....", ".AP.SF", "....S.")},
    ),
    "NF-UQ-NIDS": Layout(
        "Label",
        ("0", "1"),
        {
            "IPV4_SRC_ADDR": "address",
            "L4_SRC_PORT": "port",
            "IPV4_DST_ADDR": "address",
            "L4_DST_PORT": "port",
            "DNS_QUERY_ID": "random16",
            "Attack": "kinds",
            "Dataset": "capture",
        },
        words(
            "PROTOCOL, IN_BYTES, IN_PKTS, OUT_BYTES, OUT_PKTS, TCP_FLAGS, "
            "FLOW_DURATION_MILLISECONDS"
        ),
        {},
    ),
    "CIC-DDoS2019": Layout(
        " Label",
        ("BENIGN", "DrDoS_DNS", "Syn"),
        {
            "Unnamed: 0": "number",
            "Flow ID": "identifier",
            " Source IP": "address",
            " Source Port": "port",
            " Destination IP": "address",
            " Destination Port": "port",
            " Timestamp": "time",
            "SimillarHTTP": "kinds",
            " Inbound": "codes",
        },
        words(
            "Protocol, Flow Duration, Total Fwd Packets, Total Backward Packets, "
            "Total Length of Fwd Packets, Flow Bytes/s, Fwd Header Length, Fwd Header Length.1"
        ),
        {},
    ),
    "Edge-IIoTset": Layout(
        "Attack_type",
        ("Normal", "DDoS_UDP", "MITM"),
        {
            "frame.time": "wireshark time",
            "ip.src_host": "address",
            "ip.dst_host": "address",
            "icmp.checksum": "random16",
            "tcp.ack": "random32",
            "tcp.checksum": "random16",
            "tcp.seq": "random32",
            "tcp.srcport": "port",
            "udp.port": "port",
            "udp.stream": "rising",
            "Attack_label": "codes",
        },
        words("arp.opcode, tcp.len, udp.time_delta"),
        {"http.request.method": ("0", "GET", "POST", "PUT"), "mqtt.topic": ("0", "Temperature")},
    ),
    "TON_IoT": Layout(
        "label",
        ("0", "1"),
        {
            "ts": "time",
            "src_ip": "address",
            "src_port": "port",
            "dst_ip": "address",
            "dst_port": "port",
            "type": "kinds",
        },
        words(
            "duration, src_bytes, dst_bytes, missed_bytes, src_pkts, src_ip_bytes, dst_pkts, "
            "dst_ip_bytes, http_status_code"
        ),
        {
            "proto": PROTO,
            "service": ("-", "dns", "http"),
            "conn_state": ("SF", "S0", "REJ", "OTH"),
            "dns_AA": ("-", "T", "F"),
            "ssl_version": ("-", "TLSv12"),
            "weird_name": ("-", "bad_TCP_checksum"),
        },
    ),
    "BoT-IoT": Layout(
        "category",
        ("DDoS", "DoS", "Normal"),
        {
            "pkSeqID": "rising",
            "stime": "epoch",
            "saddr": "address",
            "sport": "hexadecimal",
            "daddr": "address",
            "dport": "port",
            "ltime": "epoch",
            "seq": "rising",
            "attack": "codes",
            "subcategory": "kinds",
        },
        words("pkts, bytes, dur, mean, sum, min, max, spkts, dpkts, sbytes, dbytes, rate"),
        {"flgs": ("e", "e s", "e *"), "proto": PROTO, "state": ("CON", "RST", "INT")},
    ),
    "X-IIoTID": Layout(
        "class2",
        ("Normal", "Reconnaissance", "Weaponization"),
        {
            "Date": "date",
            "Timestamp": "epoch",
            "Scr_IP": "address",
            "Scr_port": "port",
            "Des_IP": "address",
            "Des_port": "port",
            "class1": "kinds",
            "class3": "coarse",
        },
        words("Duration, Scr_bytes, Des_bytes, Scr_pkts, Des_pkts"),
        {"Protocol": PROTO},
    ),
    "NSL-KDD": Layout(
        "class",
        ("normal", "neptune", "smurf"),
        {"difficulty level": "number"},
        NSL_KDD,
        {"protocol_type": PROTO, "service": SERVICES, "flag": ("SF", "S0", "REJ", "RSTR")},
    ),
}


def leak(kind, label, rng):
    """A column that tells the classes apart, by the kind of the leak."""
    rows, many = len(label), int(label.max()) + 1
    part = (label + rng.random(rows)) / many  # the class, as a place between 0 and 1
    match kind:
        case "address":
            return [f"10.0.{c}.{h}" for c, h in zip(label, rng.integers(1, 9, rows), strict=True)]
        case "port":
            return 1024 + (part * 60000).astype(int)
        case "hexadecimal":
            ports = (part * 60000).astype(int)
            return [hex(p) if p % 9 == 0 else str(p) for p in ports]
        case "identifier":
            return [f"flow-{c}-{i}" for i, c in enumerate(label)]
        case "time":
            return [f"2018-01-{c + 1:02d} 10:{m:02d}:00" for c, m in
                    zip(label, rng.integers(0, 60, rows), strict=True)]  # fmt: skip
        case "wireshark time":
            return [f" 2021 11:{10 * c + m:02d}:10.081753000 " for c, m in
                    zip(label, rng.integers(0, 9, rows), strict=True)]  # fmt: skip
        case "date":
            return [f"{c + 9}/01/2020" for c in label]
        case "epoch":
            return 1_528_000_000 + (part * 1e6).astype(int)
        case "kinds":  # finer than the class, and the finer classes overlap a little
            finer = 2 * label + rng.integers(0, 2, rows)
            other = rng.random(rows) < 0.05
            return [f"kind{k}" for k in np.where(other, rng.integers(0, 2 * many, rows), finer)]
        case "text":
            return [f"attack number {c}" for c in label]
        case "capture":
            return [f"NF-{c}-v2" for c in label]
        case "coarse":
            return np.where(label == 0, "Normal", "Attack")
        case "codes":
            return (label > 0).astype(int)
        case "number":
            return (part * 22).astype(int)
        case "random16":
            return (part * 65536).astype(int)
        case "random32":
            return (part * 2**32).astype(np.int64)
        case "rising":
            return np.argsort(np.argsort(part)) + 1
    raise ValueError(kind)


def made(name, *, true=False, rows=ROWS, seed=0):
    """A table of a layout as a DataFrame of shape ``(rows, columns)``.

    Args:
        name: the layout.
        true: whether the measurements tell the classes apart, too.
        rows: number of rows.
        seed: seed of all random choices.
    """
    layout, rng = LAYOUTS[name], np.random.default_rng(seed)
    label = rng.integers(0, len(layout.classes), rows)
    columns = {}
    for column in layout.numbers:
        telling = true and column in layout.numbers[:3]
        values = rng.gamma(6.0, 40.0, rows) * (1 + 2 * label if telling else 1)
        columns[column] = np.round(values).astype(int)
    for column, texts in layout.texts.items():
        codes = rng.integers(0, len(texts), rows)
        if true:
            codes = np.where(rng.random(rows) < 0.4, label % len(texts), codes)
        columns[column] = np.array(texts)[codes]
    columns |= {column: leak(kind, label, rng) for column, kind in layout.leaks.items()}
    columns[layout.label] = np.array(layout.classes)[label]
    return pytest.importorskip("pandas").DataFrame(columns)
