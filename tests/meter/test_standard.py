# SPDX-License-Identifier: Apache-2.0
"""The standard specification on a conversation whose features are worked out by hand."""

import pytest

from n3ic.meter.packet import ACK, FIN, RST, SYN, TCP, UDP, Packet
from n3ic.meter.reference import ReferenceMeter
from n3ic.meter.standard import standard_spec
from n3ic.meter.table import catalogue_of
from n3ic.model.meter_spec import Decision, MeteredFeature, MeterSpec, Register, Step

CLIENT, SERVER, OTHER = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), bytes([10, 0, 0, 3])
OUT = (CLIENT, SERVER, 4000, 80)
BACK = (SERVER, CLIENT, 80, 4000)


def packet(time, way, wire, payload, flags, *, ttl, window, protocol=TCP):
    source, destination, sport, dport = way
    return Packet(
        time, source, destination, protocol, sport, dport, wire, wire - 14, payload, ttl, flags,
        window,
    )  # fmt: skip


def features(packets, **options):
    (record,) = ReferenceMeter(standard_spec(**options)).run(packets)
    return record.features


CONVERSATION = (
    packet(1000, OUT, 60, 0, SYN, ttl=64, window=100),
    packet(1030, BACK, 62, 0, SYN | ACK, ttl=50, window=200),
    packet(1037, OUT, 54, 0, ACK, ttl=63, window=300),
    packet(1137, OUT, 555, 501, ACK, ttl=62, window=400),
    packet(1237, BACK, 1514, 1460, ACK, ttl=49, window=500),
    packet(1241, BACK, 801, 747, ACK, ttl=48, window=600),
    packet(1300, OUT, 54, 0, FIN | ACK, ttl=61, window=9),
    packet(1500, BACK, 54, 0, RST, ttl=47, window=8),
)


def test_every_feature_of_a_conversation():
    assert features(CONVERSATION) == {
        "dur": 500,
        # forward: 1000, 1037, 1137, 1300
        "spkts": 4, "sbytes": 723, "spayload": 501, "sdatapkts": 1, "sminlen": 54, "smaxlen": 555,
        "smingap": 37, "smaxgap": 163, "sttl": 61, "sflags": SYN | ACK | FIN, "swin": 400,
        "smean": 181, "sinpkt": 100, "sload": 723 * 8000 // 500,
        # reverse: 1030, 1237, 1241, 1500
        "dpkts": 4, "dbytes": 2431, "dpayload": 2207, "ddatapkts": 2, "dminlen": 54,
        "dmaxlen": 1514, "dmingap": 4, "dmaxgap": 259, "dttl": 47, "dflags": SYN | ACK | RST,
        "dwin": 600, "dmean": 608, "dinpkt": 156, "dload": 2431 * 8000 // 500,
        "synack": 30, "ackdat": 7, "tcprtt": 37, "rate": 7 * 10**9 // 500,
        "ct_src": 1, "ct_dst": 1, "ct_src_dst": 1, "ct_src_service": 1, "ct_dst_service": 1,
    }  # fmt: skip


def test_a_mean_is_rounded_half_up():
    sizes = {(60, 61): 61, (60, 60, 61): 60, (60, 61, 61): 61, (61, 61, 61, 60): 61, (9,): 9}
    for wires, mean in sizes.items():
        way = [
            packet(i, OUT, wire, 0, 0, ttl=1, window=0, protocol=UDP)
            for i, wire in enumerate(wires)
        ]
        mean_features = features(way)
        assert (mean_features["smean"], mean_features["dmean"]) == (mean, 0)


def test_a_flow_of_one_packet_has_no_rate():
    flow_features = features(CONVERSATION[:1])
    none = ("dur", "rate", "sload", "sinpkt", "smaxgap", "dpkts", "dbytes", "synack", "tcprtt")
    assert {name: flow_features[name] for name in none} == dict.fromkeys(none, 0)
    assert (flow_features["smingap"], flow_features["dminlen"], flow_features["dmingap"]) == (
        2**32 - 1,
        65535,
        2**32 - 1,
    )


def test_windows_compare_what_their_names_say():
    """Decided flows with equal source, destination, both, and either with protocol and port."""
    ways = [
        (CLIENT, SERVER, 1, 80), (CLIENT, SERVER, 2, 80), (CLIENT, SERVER, 3, 443),
        (CLIENT, OTHER, 4, 80), (OTHER, SERVER, 5, 80), (CLIENT, SERVER, 6, 80),
    ]  # fmt: skip
    protocols = [TCP, TCP, TCP, TCP, TCP, UDP]
    packets = [
        packet(i, way, 60, 0, 0, ttl=1, window=0, protocol=protocol)
        for i, (way, protocol) in enumerate(zip(ways, protocols, strict=True))
    ]
    flow_features = [r.features for r in ReferenceMeter(standard_spec(packets=1)).run(packets)]
    names = ("ct_src", "ct_dst", "ct_src_dst", "ct_src_service", "ct_dst_service")
    assert [tuple(f[n] for n in names) for f in flow_features] == [
        (1, 1, 1, 1, 1), (2, 2, 2, 2, 2), (3, 3, 3, 1, 1), (4, 1, 1, 3, 1), (1, 4, 1, 1, 3),
        (5, 5, 4, 1, 1),
    ]  # fmt: skip


def test_windows_forget_after_a_hundred_flows():
    packets = [
        packet(i, (CLIENT, SERVER, i + 1, 80), 60, 0, 0, ttl=1, window=0) for i in range(103)
    ]
    counts = [r.features["ct_src"] for r in ReferenceMeter(standard_spec(packets=1)).run(packets)]
    assert counts == [*range(1, 101), 100, 100, 100]


def test_a_feature_has_the_bits_of_its_largest_value_and_at_least_one():
    """Its value is an integer of its unit, so the scale is 1."""
    bits = {0: 1, 1: 1, 2: 2, 255: 8, 256: 9, 2**32 - 1: 32}
    features = tuple(
        MeteredFeature(f"below {most}", program=(Step("min", "n", amount=most),)) for most in bits
    )
    spec = MeterSpec((Register("n", "count"),), (*features, MeteredFeature("n", "n")))
    catalogue = catalogue_of(spec)
    assert [(f.bits, f.scale) for f in catalogue] == [(b, 1) for b in (*bits.values(), 32)]


def test_registers_hold_what_traffic_needs():
    spec = standard_spec()
    widths = {r.name: r.width for r in spec.registers}
    sides = {
        "pkts": 24, "bytes": 32, "payload": 32, "datapkts": 24, "minlen": 16, "maxlen": 16,
        "gaps": 40, "mingap": 32, "maxgap": 32, "ttl": 8, "flags": 8, "win": 16,
    }  # fmt: skip
    tcp = ("t_syn", "t_syn_least", "t_synack", "t_synack_least", "t_ack", "dur32")
    assert widths == {
        "dur": 40, "one": 1, **dict.fromkeys(tcp, 32),
        **{f"{side}{name}": width for side in "sd" for name, width in sides.items()},
    }  # fmt: skip
    units = spec.units
    assert units["rate"] == "packet/1000 s"
    for side in "sd":
        side_units = {
            "pkts": "packet", "bytes": "byte", "minlen": "byte", "mingap": "us", "ttl": "hop",
            "flags": "", "win": "byte", "mean": "byte", "inpkt": "us", "load": "kbit/s",
        }  # fmt: skip
        assert {name: units[f"{side}{name}"] for name in side_units} == side_units


@pytest.mark.parametrize("more", [{}, {"idle_timeout_us": 7, "cache_flows": 3}])
def test_the_decision_and_timeouts_of_the_standard_meter_are_arguments(more):
    spec = standard_spec(packets=8, after_us=9, **more)
    assert spec.decision == Decision(packets=8, after=9)
    assert spec.idle_timeout == more.get("idle_timeout_us", 60_000_000)
    assert spec.cache_flows == more.get("cache_flows", 65536)


def test_features_say_what_they_are_made_of():
    meaning = {f.name: f.meaning for f in catalogue_of(standard_spec())}
    assert not meaning["spkts"].startswith("computed")
    assert meaning["rate"].startswith("computed from ")
    assert not any("_" in text for text in meaning.values() if not text.startswith("computed"))
