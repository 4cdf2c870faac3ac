# SPDX-License-Identifier: Apache-2.0
"""A table of somebody's flow collector, to verified exports and a page, with what the page names.

The commands and options are those of docs/how-to/your-own-flows.md.
"""

from __future__ import annotations

import csv
import json
import random
import re

import pytest
from sklearn.metrics import accuracy_score, f1_score

from n3ic import plugins
from n3ic.data.user_table import describe

PAGE = "docs/how-to/your-own-flows.md"
ROWS = 600
LINES = (
    "train --data flows.csv --label app --out run",
    "evaluate flows.csv --model run",
    "predict flows.csv --model run --out verdicts.csv",
    "export --model run --target {target} --out {out}",
    "report run --html page.html",
)
NFDUMP = "ts,te,td,sa,da,sp,dp,pr,flg,fwd,stos,ipkt,ibyt,opkt,obyt,in,out,sas,das,ra,tr,app"
ZEEK = (
    "ts,uid,id.orig_h,id.orig_p,id.resp_h,id.resp_p,proto,service,duration,orig_bytes,resp_bytes,"
    "conn_state,local_orig,missed_bytes,history,orig_pkts,orig_ip_bytes,resp_pkts,resp_ip_bytes,app"
)
IPFIX = (
    "flowStartMilliseconds,flowEndMilliseconds,sourceIPv4Address,destinationIPv4Address,"
    "sourceTransportPort,destinationTransportPort,protocolIdentifier,packetTotalCount,"
    "octetTotalCount,flowEndReason,app"
)
USED = {
    "nfdump": ({"td", "pr", "ipkt", "ibyt", "opkt", "obyt"}, {"ts", "te", "sa", "da", "sp", "dp"}),
    "zeek": (
        {"proto", "duration", "orig_bytes", "resp_bytes", "orig_pkts", "resp_ip_bytes"},
        {"ts", "uid", "id_orig_h", "id_orig_p", "id_resp_h", "id_resp_p"},
    ),
    "ipfix": (
        {"protocolidentifier", "packettotalcount", "octettotalcount"},
        {
            *("flowstartmilliseconds", "flowendmilliseconds", "sourceipv4address"),
            *("destinationipv4address", "sourcetransportport", "destinationtransportport"),
        },
    ),
}


def flow(draw):
    """Cells by what they mean, whatever a collector calls them."""
    app = draw.choices(("web", "dns", "voip"), (6, 3, 1))[0]
    packets = {"web": draw.randrange(8, 60), "dns": 2, "voip": draw.randrange(80, 400)}[app]
    size = packets * {"web": draw.randrange(300, 1200), "dns": 90, "voip": 200}[app]
    duration = round(draw.random() * {"web": 9, "dns": 0.2, "voip": 60}[app], 3)
    start = 1_760_000_000 + draw.random() * 86_400
    source, target = (f"10.{draw.randrange(9)}.{draw.randrange(9)}.{i}" for i in (1, 2))
    ports = draw.randrange(1024, 65536), {"web": 443, "dns": 53, "voip": 5060}[app]
    udp = draw.random() < {"web": 0.3, "dns": 0.9, "voip": 0.8}[app]  # QUIC, DNS over TCP
    return app, packets, size, duration, start, source, target, ports, udp


def nfdump(draw):
    app, packets, size, duration, start, source, target, ports, udp = flow(draw)
    when = [f"2025-10-09 {int(start) % 24:02}:{int(s) % 60:02}:00" for s in (start, start + 60)]
    half = packets // 2
    back = (packets - half, size - size // 2)
    return [
        *(*when, duration, source, target, *ports, "UDP" if udp else "TCP", "........"),
        *(0, 0, half, size // 2, *back, 1, 2, 0, 0, "10.0.0.1", "", app),
    ]


def zeek(draw):
    app, packets, size, duration, start, source, target, ports, udp = flow(draw)
    half = packets // 2
    return [
        *(f"{start:.6f}", f"C{draw.getrandbits(60):x}", source, ports[0], target, ports[1]),
        *("udp" if udp else "tcp", "-", duration, size // 3, size // 2, "SF", "T", 0, "Dd"),
        *(half, size // 3 + 28 * half, packets - half, size // 2 + 28 * (packets - half), app),
    ]


def ipfix(draw):
    app, packets, size, duration, start, source, target, ports, udp = flow(draw)
    start = int(start * 1000)
    end = start + int(duration * 1000)
    return [start, end, source, target, *ports, 17 if udp else 6, packets, size, 1, app]


COLLECTORS = {"nfdump": (NFDUMP, nfdump), "zeek": (ZEEK, zeek), "ipfix": (IPFIX, ipfix)}


@pytest.fixture(name="collected", params=COLLECTORS)
def collected_fixture(request, tmp_path):
    """The collector's name, and its table in a folder of its own."""
    header, line = COLLECTORS[request.param]
    draw = random.Random(1)
    with (tmp_path / "flows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(header.split(","))
        rows.writerows(line(draw) for _ in range(ROWS))
    return request.param, tmp_path / "flows.csv"


def test_what_a_meter_counts_is_used_and_where_it_was_is_not(collected):
    name, path = collected
    own, _ = describe(path, label="app")
    used, left = USED[name]
    columns = own.toml["columns"]
    assert {c for c in used if columns[c]["use"]} == used
    assert not {c for c in left if columns[c]["use"]}
    assert len(own.load(path)) == ROWS


@pytest.mark.parametrize("line", LINES)
def test_the_page_names_each_command_and_option(line, repository):
    page = (repository / PAGE).read_text("utf-8")
    command, *words = line.split()
    assert f"n3ic {command}" in page
    assert {w for w in words if w.startswith("--")} <= {*re.findall(r"--[a-z-]+", page)}


@pytest.mark.slow
@pytest.mark.usefixtures("small_baselines", "quick_build")
def test_the_page_leads_to_verified_exports_and_a_report(collected, repository, n3ic):
    """One collector's table goes to all targets, the others', which differ in columns, to one."""
    name, path = collected
    wanted, out = ("all", "exports") if name == "nfdump" else ("host", "exports/host")
    for line in LINES:
        n3ic(line.format(target=wanted, out=out))
    folder = path.parent
    true, predicted = (
        [row[column] for row in csv.DictReader((folder / file).read_text().splitlines())]
        for file, column in (("flows.csv", "app"), ("verdicts.csv", "class"))
    )
    assert len(predicted) == ROWS
    figures = json.loads(n3ic("evaluate flows.csv --model run --json").stdout)["networks"][""]
    assert figures["accuracy"] == pytest.approx(accuracy_score(true, predicted))
    assert figures["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro"))
    metrics = json.loads((folder / "run" / "metrics.json").read_text())
    assert metrics["test"]["accuracy"] > metrics["baselines"]["majority"]["accuracy"]
    targets = plugins.names("n3ic.exporters") if wanted == "all" else [wanted]
    assert sorted(p.name for p in (folder / "exports").iterdir()) == sorted(targets)
    for target in targets:
        (verification,) = json.loads(n3ic(f"verify exports/{target} --json").stdout)
        assert verification["ok"] or verification["missing"], verification
    text = (folder / "page.html").read_text()
    assert all(f">{target}</" in text for target in targets)
