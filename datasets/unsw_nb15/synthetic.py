# SPDX-License-Identifier: Apache-2.0
"""Synthetic flows with the columns of UNSW-NB15, from a seed.

Conversations are drawn by behaviour, placed in time, and turned into packets, bytes and times
by the arithmetic that a flow meter does, so that the columns agree with one another: a load is
bytes over a duration, a mean is bytes over packets, a counter counts the flows before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import FlowTable, SourceFile
from n3ic.datasets.unsw_nb15.behaviours import BEHAVIOURS, Behaviour, Spread
from n3ic.datasets.unsw_nb15.catalogue import BY_NAME, CATALOGUE, Column, to_units, with_derived
from n3ic.datasets.unsw_nb15.columns import (
    CLASSES,
    FIRST_SYNTHETIC_ID,
    NORMAL,
    PARTITION_COLUMNS,
    PROTOCOLS,
    SERVICES,
    STATES,
)
from n3ic.datasets.unsw_nb15.meter import one_tap
from n3ic.errors import UsageError
from n3ic.util.files import write_atomic

NAME = "unsw-nb15-synthetic"
ROWS = 20_000
SEED = 1
MAX_ROWS = 10_000_000
_SEGMENT = 1448
_LARGEST = 8e6
_LINE = 5e9
_HOSTS = 40
_SERVERS = 12
_TTL = (64, 128, 255)

Source = NDArray[np.generic]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def generate(rows: int = ROWS, seed: int = SEED) -> FlowTable:
    """Generate a table of synthetic flows.

    Args:
        rows: number of flows.
        seed: the same seed and rows give the same table.

    Raises:
        UsageError: ``rows`` is not in 1..10,000,000 or ``seed`` is negative.
    """
    source = generate_columns(rows, seed)
    digest = hashlib.sha256(to_csv(source)).hexdigest()
    columns = with_derived(_integers(source))
    return FlowTable(
        name=NAME,
        features=columns,
        catalogue=tuple(f for f in CATALOGUE if f.name in columns),
        label=source["label"].astype(np.int64),
        classes=CLASSES,
        synthetic=True,
        sha256=digest,
        category=source["attack_cat"].astype(np.str_),
        partition=np.full(rows, "", dtype="U5"),
        sources=(SourceFile(f"seed {seed}", digest, rows, "synthetic: made by a generator"),),
        meter=one_tap(),
    )


def write_csv(path: str | Path, rows: int = ROWS, seed: int = SEED) -> Path:
    """Write synthetic flows as a CSV file in the layout of the partition files.

    Raises:
        UsageError: ``rows`` or ``seed`` is out of range.
        N3icError: the file cannot be written.
    """
    write_atomic(path, to_csv(generate_columns(rows, seed)))
    return Path(path)


def to_csv(source: Mapping[str, Source]) -> bytes:
    """Format columns in source units as the bytes of a partition file."""
    cells = [
        map(str if source[n].dtype.kind == "U" else repr, source[n].tolist())
        for n in PARTITION_COLUMNS
    ]
    lines = map(",".join, zip(*cells, strict=True))
    return "\n".join([",".join(PARTITION_COLUMNS), *lines, ""]).encode()


def _integers(source: Mapping[str, Source]) -> dict[str, Column]:
    codes = {"proto": PROTOCOLS, "service": SERVICES, "state": STATES}
    out: dict[str, Column] = {}
    for name in PARTITION_COLUMNS:
        if name in codes:
            names, index = np.unique(source[name], return_inverse=True)
            code = np.array([codes[name][str(n).lower()] for n in names], dtype=np.int64)
            out[name] = code[index]
        elif name in BY_NAME:
            out[name] = to_units(name, source[name])
    return out


def generate_columns(rows: int = ROWS, seed: int = SEED) -> dict[str, Source]:
    """Generate synthetic flows as columns of a partition file, in source units, in time order.

    Raises:
        UsageError: ``rows`` is not in 1..10,000,000 or ``seed`` is negative.
    """
    if not 1 <= rows <= MAX_ROWS:
        raise UsageError(f"rows must be in 1..{MAX_ROWS:,}, got {rows}")
    if seed < 0:
        raise UsageError(f"seed must be 0 or more, got {seed}")
    rng = np.random.default_rng(seed)
    shares = np.array([b.share for b in BEHAVIOURS])
    counts = rng.multinomial(rows, shares / shares.sum())
    span = rows * 0.05
    parts = [_flows(rng, b, int(n), span) for b, n in zip(BEHAVIOURS, counts, strict=True) if n]
    flows = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    order = np.argsort(flows.pop("time"), kind="stable")
    flows = {name: values[order] for name, values in flows.items()}
    flows |= _counters(flows)
    flows["id"] = np.arange(rows, dtype=np.int64) + FIRST_SYNTHETIC_ID
    return {name: flows[name] for name in PARTITION_COLUMNS}


def _lognormal(rng: np.random.Generator, spread: Spread, n: int) -> Floats:
    median, sigma = spread
    return median * np.exp(sigma * rng.standard_normal(n))


def _request(rng: np.random.Generator, b: Behaviour, n: int) -> Floats:
    if not b.canned:
        return _lognormal(rng, b.request, n)
    # a tool sends few distinct payloads: quantiles of the spread, some far more often
    levels = np.linspace(-1.8, 1.8, b.canned) if b.canned > 1 else np.zeros(1)
    sizes = np.rint(b.request[0] * np.exp(b.request[1] * levels))
    return sizes[np.minimum(rng.geometric(min(1.0, 2.5 / b.canned), n) - 1, b.canned - 1)]


def _sessions(rng: np.random.Generator, b: Behaviour, n: int, span: float) -> dict[str, Source]:
    """Draw who talks to whom, and when."""
    first = rng.random(n) < 1 / b.session
    first[0] = True
    session = np.cumsum(first) - 1
    sessions = int(session[-1]) + 1
    gaps = np.where(first, 0.0, rng.exponential(b.gap, n))
    since = np.cumsum(gaps)
    start = rng.uniform(0, span, sessions)
    time = start[session] + since - since[first][session]
    src = rng.integers(0, _HOSTS, sessions)[session]
    dst = (_HOSTS + rng.integers(0, _SERVERS, sessions))[session]
    dport = rng.integers(1024, 40_000, sessions)[session] if b.port == 0 else np.full(n, b.port)
    if b.scan:
        dst = _HOSTS + rng.integers(0, _SERVERS, n)
        dport = rng.integers(1, 10_000, n) if b.port == 0 else dport
    sport = rng.integers(1024, 65_536, n)
    fixed = (rng.random(sessions) < (0.5 if b.canned and b.session > 10 else 0.05))[session]
    sport = np.where(fixed, rng.integers(1024, 65_536, sessions)[session], sport)
    ttl = np.array(_TTL)[rng.choice(3, (2, sessions), p=(0.6, 0.3, 0.1))]
    hops = rng.integers(1, 16, sessions)
    return {
        "time": time,
        "src": src,
        "dst": dst,
        "sport": sport,
        "dport": dport,
        "sttl": (ttl[0] - hops)[session],
        "dttl": (ttl[1] - hops)[session],
    }


def _flows(rng: np.random.Generator, b: Behaviour, n: int, span: float) -> dict[str, Source]:
    """Draw the flows of one behaviour: all columns but the counters."""
    who = _sessions(rng, b, n, span)
    tcp = b.proto == "tcp"
    header = 52 if tcp else 28 if b.proto == "udp" else 18 if b.proto == "arp" else 20
    answered = rng.random(n) < b.answered
    turns = rng.geometric(1 / b.turns, n) if b.turns > 1 and not b.canned else np.full(n, b.turns)
    turns = turns.astype(np.int64)
    turns = np.where(tcp & ~answered, 1, turns)
    rtt = _lognormal(rng, b.rtt, n)

    # payload and packets; an unanswered TCP opening carries no payload
    up = np.where(answered | (not tcp), _request(rng, b, n), 0.0)
    up = np.minimum(np.rint(up * (1 if tcp else turns)), _LARGEST).astype(np.int64)
    down = np.where(answered, np.rint(_lognormal(rng, b.response, n)), 0)
    down = np.minimum(down, _LARGEST).astype(np.int64)
    if tcp and b.request[0] == 0:
        up, down = np.zeros(n, np.int64), np.zeros(n, np.int64)
    segments_up = np.maximum(-(-up // _SEGMENT), np.where(up > 0, turns, 0))
    segments_down = np.maximum(-(-down // _SEGMENT), np.where(down > 0, turns, 0))
    if tcp:
        tries = rng.integers(1, 4, n)
        spkts = np.where(answered, 3 + segments_up + segments_down // 2, tries)
        dpkts = np.where(answered, 2 + segments_down + segments_up // 2, 0)
    else:
        spkts = np.maximum(segments_up, 1)
        dpkts = np.where(answered, np.maximum(segments_down, 1), 0)
    sloss = rng.binomial(spkts, min(1.0, b.loss)) if tcp else np.zeros(n, np.int64)
    dloss = rng.binomial(dpkts, min(1.0, b.loss)) if tcp else np.zeros(n, np.int64)
    spkts, dpkts = spkts + sloss, dpkts + dloss
    sbytes = up + header * spkts + np.minimum(sloss * _SEGMENT, up)
    dbytes = down + header * dpkts + np.minimum(dloss * _SEGMENT, down)

    # time: handshake, exchanges with their pauses, transfer
    pauses = np.maximum(np.where(answered, turns, spkts) - 1, 0)
    speed = _lognormal(rng, b.speed, n)
    seconds = np.where(answered, rtt * (turns + 1.5 * tcp), 0.0)
    seconds += pauses * _lognormal(rng, b.think, n) + 8 * (sbytes + dbytes) / speed * answered
    seconds += 0.2 * rtt * (sloss + dloss)
    seconds = np.maximum(seconds, 8 * (sbytes + dbytes) / _LINE)
    seconds = np.where(spkts + dpkts > 1, np.maximum(np.rint(seconds * 1e6), 1), 0) / 1e6
    setup = np.where(answered & tcp, np.minimum(rtt, seconds / 2), 0.0)
    synack = np.rint(setup * rng.beta(6, 3, n) * 1e6) / 1e6
    ackdat = np.rint(setup * 1e6) / 1e6 - synack

    category = np.full(n, b.category)
    http = (b.service == "http") & answered
    methods = np.where(http, np.minimum(turns, 30), 0)
    out: dict[str, Source] = {
        **{k: who[k] for k in ("time", "src", "dst", "sport", "dport")},
        "dur": seconds,
        "proto": np.full(n, b.proto),
        "service": np.full(n, b.service),
        "state": _state(rng, b, answered),
        "spkts": spkts,
        "dpkts": dpkts,
        "sbytes": sbytes,
        "dbytes": dbytes,
        "sttl": who["sttl"],
        "dttl": np.where(dpkts > 0, who["dttl"], 0),
        "sloss": sloss,
        "dloss": dloss,
        "swin": np.full(n, 255 if tcp else 0),
        "dwin": np.where(tcp & answered, 255, 0),
        "stcpb": np.where(tcp, rng.integers(0, 1 << 32, n), 0),
        "dtcpb": np.where(tcp & answered, rng.integers(0, 1 << 32, n), 0),
        "synack": synack,
        "ackdat": np.round(ackdat, 6),
        "tcprtt": np.round(synack + ackdat, 6),
        "trans_depth": np.where(methods > 0, 1, 0),
        "response_body_len": np.where(http, np.maximum(down - 250 * turns, 0), 0),
        "ct_flw_http_mthd": methods,
        "is_ftp_login": np.where(answered & (b.service == "ftp"), 1, 0),
        "ct_ftp_cmd": np.where(answered & (b.service == "ftp"), np.minimum(turns, 9), 0),
        "attack_cat": category,
        "label": (category != NORMAL).astype(np.int64),
    }
    out |= _rates(rng, out)
    return out


def _state(rng: np.random.Generator, b: Behaviour, answered: NDArray[np.bool_]) -> Source:
    n = len(answered)
    if b.proto == "tcp":
        ended = rng.choice(["FIN", "CON", "RST"], n, p=(0.94, 0.04, 0.02))
        return np.where(answered, ended, "REQ")
    return np.where(answered, "CON", "INT")


def _rates(rng: np.random.Generator, f: Mapping[str, Source]) -> dict[str, Source]:
    """Rates, means and times between packets, by the arithmetic of the flow meter."""
    dur = f["dur"].astype(np.float64)
    safe = np.where(dur > 0, dur, 1.0)
    spkts, dpkts = f["spkts"].astype(np.float64), f["dpkts"].astype(np.float64)
    out: dict[str, Source] = {"rate": np.round(np.where(dur > 0, (spkts + dpkts - 1) / safe, 0), 6)}
    for side, packets in (("s", spkts), ("d", dpkts)):
        n = len(packets)
        many = packets > 1
        volume = f[f"{side}bytes"].astype(np.float64)
        # the meter counts the bits that follow the first packet
        counted_volume = volume * (packets - 1) / np.maximum(packets, 1)
        out[f"{side}load"] = np.round(np.where(many & (dur > 0), 8 * counted_volume / safe, 0), 3)
        out[f"{side}mean"] = np.rint(volume / np.maximum(packets, 1)).astype(np.int64)
        # the packets of a side lie within the flow's duration
        within = dur * np.where(dpkts > 0, rng.uniform(0.9, 1.0, n), 1.0)
        gap = np.where(many, within / np.maximum(packets - 1, 1) * 1e3, 0)
        out[f"{side}inpkt"] = np.round(gap, 6)
        uneven = gap * rng.gamma(2.0, 0.6, n) * np.sqrt(np.maximum(packets - 2, 0) / 4 + 0.1)
        out[f"{side}jit"] = np.round(np.where(packets > 2, uneven, 0), 6)
    return out


def _counters(f: dict[str, Source]) -> dict[str, Source]:
    """Count flows among the last 100, this one included; add ct_state_ttl and is_sm_ips_ports."""
    ids: dict[str, Ints] = {}
    service = np.unique(f["service"], return_inverse=True)[1].astype(np.int64)
    src, dst = f.pop("src").astype(np.int64), f.pop("dst").astype(np.int64)
    sport, dport = f.pop("sport").astype(np.int64), f.pop("dport").astype(np.int64)
    ids["ct_srv_src"] = src * 1000 + service
    ids["ct_srv_dst"] = dst * 1000 + service
    ids["ct_dst_ltm"] = dst
    ids["ct_src_ltm"] = src
    ids["ct_src_dport_ltm"] = src * 100_000 + dport
    ids["ct_dst_sport_ltm"] = dst * 100_000 + sport
    ids["ct_dst_src_ltm"] = dst * 1000 + src
    out: dict[str, Source] = {}
    for name, key in ids.items():
        count = np.ones(len(key), np.int64)
        for lag in range(1, min(100, len(key))):
            count[lag:] += key[lag:] == key[:-lag]
        out[name] = count
    sttl, dttl = f["sttl"].astype(np.int64), f["dttl"].astype(np.int64)
    one_way = dttl == 0
    out["ct_state_ttl"] = np.where(one_way, 2, 0) + (sttl > 64)
    out["is_sm_ips_ports"] = np.zeros(len(src), np.int64)
    return out
