# SPDX-License-Identifier: Apache-2.0
"""Files of addresses to block or allow, as other tools write them."""

import ipaddress
import json
import math
from typing import Any

import pytest

from n3ic.errors import UsageError
from n3ic.exporters.xdp import layout
from n3ic.exporters.xdp.verdict_lists import verdict_subject
from n3ic.meter.standard import standard_spec
from n3ic.systems.xdp.prefix_files import read_prefix_file

PLAIN = """\ufeff# hosts that attacked
192.0.2.1
  198.51.100.0/24   # a provider

2001:db8::/32 ; SBL1
2001:db8::1
192.0.2.1
"""
ALERTS: list[dict[str, Any]] = [
    {"id": 1, "decisions": [
        {"duration": "3h59m56.5s", "scope": "Ip", "type": "ban", "value": "192.0.2.1"},
        {"duration": "1h", "scope": "Range", "type": "ban", "value": "198.51.100.0/24"},
        {"duration": "1h", "scope": "Country", "type": "ban", "value": "XX"},
    ]},
    {"id": 2, "decisions": [
        {"duration": "1h", "scope": "Ip", "type": "captcha", "value": "192.0.2.2"},
        {"duration": "-5m3s", "scope": "Ip", "type": "ban", "value": "192.0.2.3"},
        {"duration": "1h", "scope": "Ip", "type": "ban", "value": "192.0.2.4", "simulated": True},
        {"duration": "2d", "scope": "Ip", "type": "ban", "value": "2001:db8::1"},
    ]},
]  # fmt: skip
BANS = {"192.0.2.1": 14396.5, "198.51.100.0/24": 3600, "2001:db8::1": 172_800}
RAW = """id,source,ip,reason,action,country,as,events_count,expiration,simulated,alert_id
7,crowdsec,Ip:192.0.2.1,crowdsecurity/ssh-bf,ban,XX,"64500 One, Ltd.",6,3h59m56.5s,false,3
8,crowdsec,Range:198.51.100.0/24,by hand,ban,,,1,1h0m0s,false,4
9,crowdsec,Country:XX,by hand,ban,,,1,1h0m0s,false,4
10,crowdsec,Ip:2001:db8::1,by hand,ban,,,1,48h,false,5
"""
IPSET = """create bad hash:ip family inet hashsize 1024 maxelem 65536 timeout 300 comment
add bad 192.0.2.1 timeout 290 packets 3 bytes 180 comment "a add b"
add bad 192.0.2.2 timeout 0
create bad6 hash:net family inet6 hashsize 1024 maxelem 65536
add bad6 2001:db8::/32
"""


def contents(path, text, *, bans=True):
    """Prefixes of a file and their times, and the number of decisions that were left out."""
    path.write_text(text, encoding="utf-8")
    prefixes = read_prefix_file(path, bans=bans)
    shown = {}
    for key, seconds in zip(prefixes.keys, prefixes.seconds.tolist(), strict=True):
        packed = key["address"][: key["family"]].tobytes()
        network = ipaddress.ip_network((packed, int(key["bits"]) - layout.PREFIX_FAMILY))
        name = verdict_subject(str(network), standard_spec())
        assert name.key == key.tobytes()  # what is typed has the same key
        shown[name.text] = seconds
    return shown, prefixes.left_out


def test_plain_lists(tmp_path):
    wanted = dict.fromkeys(
        ("192.0.2.1", "198.51.100.0/24", "2001:db8::/32", "2001:db8::1"), math.inf
    )
    for text in (PLAIN, PLAIN.replace("\n", "\r\n")):
        assert contents(tmp_path / "list", text, bans=False) == (wanted, 0)
    assert contents(tmp_path / "list", "# nobody\n") == ({}, 0)


def test_decisions_of_crowdsec(tmp_path):
    path, flat = tmp_path / "decisions", [d for a in ALERTS for d in a["decisions"]]
    for data in (ALERTS, flat, {"new": flat, "deleted": [{"value": "192.0.2.9"}]}):
        assert contents(path, json.dumps(data, indent=1)) == (BANS, 4)
    assert contents(path, RAW) == (BANS, 1)
    assert contents(path, "duration,scope,value\n1h,ip,192.0.2.1\n") == ({"192.0.2.1": 3600}, 0)
    assert contents(path, "null\n") == ({}, 0)
    with pytest.raises(UsageError, match="expected a list to allow"):
        read_prefix_file(path, bans=False)


def test_sets_of_ipset(tmp_path):
    wanted = {"192.0.2.1": 290, "192.0.2.2": math.inf, "2001:db8::/32": math.inf}
    assert contents(tmp_path / "set", IPSET) == (wanted, 0)


def test_of_one_prefix_the_longer_time_counts(tmp_path):
    text = "create a hash:ip\nadd a 192.0.2.1 timeout 9\nadd a 192.0.2.1 timeout 90\n"
    assert contents(tmp_path / "set", text + "add a 192.0.2.1 timeout 8\n")[0] == {"192.0.2.1": 90}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("192.0.2.1\n\n192.0.2.300\n", r"list: line 3: '192\.0\.2\.300': expected an address"),
        ("192.0.2.1/24\n", "line 1: .*bits behind the prefix"),
        ("0.0.0.0/0\n", "line 1: .*every address"),
        ("192.0.2.0/33\n", "line 1: .*1 to 32 bits"),
        ("2001:db8::/+3\n", "line 1: .*1 to 128 bits"),
        ("host.example\n192.0.2.1 5\n", "line 1: .*line 2: .*nothing was changed"),
        ("x\n" * 9, "line 5: 'x': [^;]*; and 4 more; nothing was changed"),
        ("create a hash:ip,port\nadd a 192.0.2.1,tcp:80\n", "line 1: .*hash:net.*line 2: "),
        ("create a hash:net\nadd a 192.0.2.0/24 nomatch\n", "line 2: .*nomatch"),
        ("create a hash:ip\nadd a 192.0.2.1 timeout\n", "line 2: .*timeout"),
        ("duration,value\n1x,192.0.2.1\n1h\n", "line 2: '1x' is no duration.*line 3: .*2 columns"),
        ('[{"value": "x"}, 5]', "decision 2: expected an object.*decision 1: 'x'"),
        ("[{]", "expected JSON"),
    ],
)
def test_wrong_entries_are_named(tmp_path, text, message):
    path = tmp_path / "list"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_prefix_file(path, bans=True)


def test_what_is_no_file_of_text_is_refused(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for name, message in (("bytes", "UTF-8"), ("none", "No such file"), (".", "folder")):
        with pytest.raises(UsageError, match=message):
            read_prefix_file(tmp_path / name, bans=True)
