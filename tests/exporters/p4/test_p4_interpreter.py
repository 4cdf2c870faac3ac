# SPDX-License-Identifier: Apache-2.0
"""The interpreter of P4: what the language says, and what is known to break its compilers."""

import pytest

from n3ic.exporters.p4.interpreter import P4Error, Switch, SwitchOutcome

V1MODEL = """
#include <core.p4>
#include <v1model.p4>
%(top)s
header h_t { bit<16> a; bit<16> b; }
header small_t { bit<4> high; bit<4> low; }
struct headers_t { h_t h; small_t small; h_t other; }
struct meta_t { bit<8> x; bit<8> y; bit<8> z; bit<16> w; bit<1> one; bit<40> wide; }
parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        transition select(hdr.h.a) { 0xffff: more; 16w0xeeee: reject; default: accept; }
    }
    state more { pkt.extract(hdr.small); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
%(controls)s
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    %(locals)s
    apply { sm.egress_spec = 1; %(apply)s }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out pkt, in headers_t hdr) {
    apply { pkt.emit(hdr.h); pkt.emit(hdr.small); pkt.emit(hdr.other); %(deparse)s }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
PARTS = ("top", "controls", "locals", "apply", "deparse")


def switch(**parts: str) -> Switch:
    return Switch(V1MODEL % (dict.fromkeys(PARTS, "") | parts))


def after(packet: bytes = b"\x12\x34\x56\x78", **parts: str) -> SwitchOutcome:
    return switch(**parts).process(packet, 0)


def value(expression: str, start: str = "") -> int:
    return after(apply=f"{start} meta.wide = {expression};").value("metadata.wide")


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("(bit<40>) (8w255 + 8w1)", 0),  # wraps
        ("(bit<40>) (8w0 - 8w1)", 255),
        ("(bit<40>) (~8w0x0f)", 0xF0),
        ("(bit<40>) (8w0x81 << 1)", 2),  # what leaves on the left is lost
        ("(bit<40>) (8w0x81 >> 1)", 0x40),  # unsigned: zeros come in
        ("(bit<40>) (8w1 << 8)", 0),  # shifts beyond the width
        ("(bit<40>) (8w255 >> 256)", 0),
        ("(bit<40>) meta.y[1:1]", 1),
        ("(bit<40>) (meta.y[2:1] ++ meta.y[0:0])", 3),
        ("(bit<40>) meta.y[7:0]", 3),
        ("(bit<40>) (8w0xab ++ 4w0xc)", 0xABC),  # the left side is the high one
        ("(bit<40>) (bit<4>) 8w0xab", 0xB),  # casts keep the low bits
        ("40w8 | 40w1 & 3", 9),
        ("40w1 ^ 40w3 & 2", 3),
        ("40w2 + 3 << 1", 10),  # + binds more than <<
        ("40w7 - 2 - 1", 4),  # from the left
        ("(bit<40>) meta.y + 1", 4),  # a cast binds more than +
        ("~meta.wide & 0xff", 0xFF),
        ("1_000", 1000),
        ("40w010", 10),  # and no octal
    ],
)
def test_expressions_follow_the_specification(expression: str, result: int) -> None:
    assert value(expression, "meta.y = 3;") == result


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("meta.x = meta.w;", r"expected bit<8>, got bit<16>"),
        ("meta.x = meta.y + meta.w;", r"expected bit<8>, got bit<16>"),
        ("meta.x = 256;", "256 does not fit bit<8>"),
        ("meta.x = 4w16;", "does not fit 4 bits"),
        ("meta.x = meta.y + 300;", "300 does not fit bit<8>"),
        ("meta.x = meta.nowhere;", "no field nowhere"),
        ("nothing.x = 1;", "nothing is not declared"),
        ("meta.x = 1 ++ meta.y;", r"\+\+ needs two values with a width"),
        ("meta.x = ~1;", "~ needs a value with a width"),
        ("meta.x = 1 + 1;", r"\+ needs a value with a width"),
        ("meta.x = meta.y >> meta.y;", "shifts a value with a width by a constant"),
        ("meta.x = meta.y >> 257;", "p4c shifts by at most 256; take a slice"),
        ("meta.x = meta.y[8:1];", r"\[8:1\] takes no bits of bit<8>"),
        ("meta.x = (bit<8>) meta.y[1:2];", r"\[1:2\] takes no bits of bit<8>"),
        ("meta.x = meta.y[3:0];", "expected bit<8>, got bit<4>"),
        ("hdr.h = 1;", "not a single value"),
        ("meta.x.setValid();", "is not a header"),
        ("missing();", "not supported here"),
        ("hdr.h.apply();", "not supported here"),
        ("mark_to_drop(meta);", "no field egress_spec"),
        ("meta.wide = 41w0;", "expected bit<40>, got bit<41>"),
        ("meta.wide = (bit<40>) (bit<0>) meta.x;", "bit<0> has no such width"),
        ("if (meta.isValid()) { }", "is not a header"),
        ("meta.x = 3 3;", "syntax error"),
        ("meta.x = " + "0" * 19 + "1" + "9" * 5000 + "w1;", "has no such width"),
        ("meta.x = 1" + "0" * 5000 + ";", "is not a number"),
        ("meta.x = -meta.y;", "syntax error"),
        ("return;", "syntax error"),
        ("bit<8> v = 1;", "syntax error"),
    ],
)
def test_what_cannot_be_computed_names_its_line(text: str, reason: str) -> None:
    with pytest.raises(P4Error, match=reason) as caught:
        switch(apply=text)
    assert caught.value.line > 0


def test_headers_are_read_and_written_only_while_valid() -> None:
    with pytest.raises(P4Error, match=r"headers.other.a is read, but its header is not valid"):
        after(apply="meta.w = hdr.other.a;")
    with pytest.raises(P4Error, match="is written, but its header is not valid"):
        after(apply="hdr.other.a = 1;")
    with pytest.raises(P4Error, match=r"headers.other.b is emitted before it is written"):
        after(apply="hdr.other.setValid(); hdr.other.a = 1;")
    sent = after(apply="hdr.other.setValid(); hdr.other.a = 1; hdr.other.b = hdr.h.a;")
    assert sent.packet == bytes.fromhex("12345678 00011234")


def test_parsing_and_deparsing_keep_the_rest() -> None:
    packet = bytes.fromhex("ffff5678ab") + b"rest"
    outcome = after(
        packet, apply="hdr.small.low = hdr.small.high; hdr.h.b = hdr.h.b & 0xff00 | 0x99;"
    )
    assert outcome.packet == bytes.fromhex("ffff5699aa") + b"rest"


@pytest.mark.parametrize("packet", [b"", b"\x12", bytes.fromhex("ffff5678"), b"\xee\xee\x00\x00z"])
def test_short_and_rejected_packets_go_on_unparsed(packet: bytes) -> None:
    outcome = after(packet, apply="if (hdr.small.isValid()) { hdr.h.a = 0; }")
    assert outcome.packet == packet


def test_dropped_packets_do_not_leave() -> None:
    outcome = after(apply="mark_to_drop(sm);")
    assert (outcome.port, outcome.packet) == (None, b"")


TABLE = """
    @name(".set") action set(bit<8> v, bit<16> w) { meta.x = v; meta.w = w; }
    action nop() { }
    @name(".t") table t { key = { hdr.h.a: exact; meta.y: exact; }
        actions = { set; NoAction; } size = 8; default_action = NoAction(); }
    action seven() { meta.x = 7; }
    table keyless { actions = { set; nop; seven; } default_action = seven(); }
"""


def test_tables_match_and_defaults_change_at_run_time() -> None:
    running = switch(locals=TABLE, apply="t.apply(); meta.z = meta.x; keyless.apply();")
    assert running.process(b"\0\1\0\0", 0).value("metadata.x") == 7
    assert running.load("table_add t set 0x1 0 => 5 6\ntable_set_default keyless I.nop\n") == 2
    outcome = running.process(b"\0\1\0\0", 0)
    assert (outcome.value("metadata.z"), outcome.value("metadata.w")) == (5, 6)
    assert running.process(b"\0\2\0\0", 0).value("metadata.z") == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("table_set_default nowhere set 1 2", "no table nowhere"),
        ("table_set_default t nop", "table t has no action nop"),
        ("table_set_default t set 1", "needs 2 parameters, got 1"),
        ("table_set_default t set 256 2", "0x100 does not fit bit<8>"),
        ("table_set_default t set -1 2", "does not fit bit<8>"),
        ("table_set_default t set one 2", "'one' is not a number"),
        ("table_add t set 1 => 1 2", "has 2 keys, got 1"),
        ("table_add t set 1 2 1 2", "takes KEYS => DATA"),
        ("table_add t set 0x10000 2 => 1 2", "does not fit bit<16>"),
        ("table_add t set 1 2 =>", "needs 2 parameters, got 0"),
        ("table_add t NoAction 1 0", "takes KEYS => DATA"),  # the last key would be lost
        ("table_add t set 1 2 => 1 => 2", "needs 2 parameters, got 3"),
        ("table_add t set 02:00:00:00:00:01 2 => 1 2", "is not a number of 16 bits"),
        ("table_add t set 010 2 => 1 2", "is not a number"),
        ("table_add t set 1->2 2 => 1 2", "expected a number"),
        ("table_add I.keyless seven =>", "has 0 keys"),
        ("table_set_default t set => 1 2", "needs 2 parameters, got 3"),
        ("table_set_default t", "not a table command"),
        ("table_dump t set", "not a table command"),
        ("table_delete t 0", "not a table command"),
        ("table_modify t NoAction 0", "crashes simple_switch_CLI: write =>"),
        ("table_modify t set 0", "crashes simple_switch_CLI"),
        ("table_modify t set 0 => 1", "needs 2 parameters, got 1"),
        ("table_modify t set 0x0 1 2", "not a decimal number for a handle"),
        ("table_modify t set -1 1 2", "not a decimal number for a handle"),
        ("table_modify t NoAction 0 =>", "has 0 entries, no entry 0"),
        ("\n", "repeat the line before it"),
        ("# comment", "not a table command"),
        ("table_set_default t set \u0661 2", "expected ASCII"),
    ],
)
def test_entries_that_do_not_suit_the_program_are_refused(line: str, reason: str) -> None:
    running = switch(locals=TABLE, apply="t.apply(); keyless.apply();")
    with pytest.raises(P4Error, match=f"entry 1: .*{reason}"):
        running.load(line)


def test_a_name_that_two_end_in_names_neither() -> None:
    """Also the one whose whole name it is: simple_switch_CLI knows names by their unique ends."""
    two = """
        @name(".t") table t { actions = { NoAction; } default_action = NoAction(); }
        @name("t") table u { actions = { NoAction; } default_action = NoAction(); }
    """
    running = switch(locals=two, apply="t.apply(); u.apply();")
    assert set(running.tables) == {"t", "I.t"}
    assert running.load("table_set_default I.t NoAction") == 1
    with pytest.raises(P4Error, match=r"table t is ambiguous: I\.t, t"):
        running.load("table_set_default t NoAction")


def test_nothing_of_a_file_runs_where_a_line_is_wrong() -> None:
    running = switch(locals=TABLE, apply="t.apply(); keyless.apply();")
    with pytest.raises(P4Error, match="entry 2"):
        running.load("table_set_default keyless nop\ntable_set_default keyless gone\n")
    assert running.tables["I.keyless"].default.action == "I.seven"


def test_a_full_table_and_an_entry_that_is_there_are_refused() -> None:
    running = switch(locals=TABLE, apply="t.apply(); keyless.apply();")
    running.load("\n".join(f"table_add t NoAction {key} 0 =>" for key in range(8)))
    for key, reason in ((3, "already has an entry for"), (8, "has room for 8 entries")):
        with pytest.raises(P4Error, match=reason):
            running.load(f"table_add t NoAction {key} 0 =>")


def test_an_entry_is_modified_with_and_without_the_arrow() -> None:
    running = switch(locals=TABLE, apply="t.apply(); keyless.apply();")
    running.load("table_add t set 1 0 => 5 6\n")
    for line, expected in (
        ("table_modify t set 0 7 8", ("set", (7, 8))),
        ("table_modify t NoAction 0 =>", ("NoAction", ())),
        ("table_modify t set 0 => 9 1", ("set", (9, 1))),
    ):
        running.load(line)
        does = running.tables["t"].entries[0].does
        assert (does.action, does.data) == expected


def test_addresses_are_read_by_their_width() -> None:
    table = """
        action set(bit<48> mac, bit<32> address) { meta.wide = (bit<40>) mac; }
        table t { actions = { set; NoAction; } default_action = NoAction(); }
    """
    running = switch(locals=table, apply="t.apply();")
    running.load("table_set_default t set 02:00:00:00:00:01 10.1.2.3")
    assert running.tables["I.t"].default.data == (0x020000000001, 0x0A010203)
    for data in ("0x01 10.1.2", "0x01 10.1.2.256", "02:00:00:00:00 0", "10.1.2.3 0"):
        with pytest.raises(P4Error, match="is not a number of"):
            running.load(f"table_set_default t set {data}")


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"locals": TABLE, "apply": "t.apply(); t.apply();"}, "t is applied twice"),
        ({"locals": "action a() { a(); }"}, "not supported here"),
        ({"locals": "action a() { meta.x = 1; } action a() { }"}, "is declared twice"),
        ({"locals": "action a() { if (hdr.h.isValid()) { } }"}, "must not contain if"),
        (
            {"locals": "table t { actions = { gone; } default_action = gone(); }"},
            "the program has no action gone",
        ),
        (
            {"locals": "action a() {} table t { actions = { a; } default_action = NoAction(); }"},
            "default action NoAction is not in actions",
        ),
        (
            {"locals": "action a(bit<8> v) {} table t { actions = { a; } default_action = a(); }"},
            "needs 1 parameters, got 0",
        ),
        ({"locals": "table t { key = { meta.x: lpm; } actions = { NoAction; } }"}, "syntax error"),
        ({"locals": "action a(h_t v) { }"}, "action data is bit<N>"),
        ({"top": "header odd_t { bit<7> v; }"}, "has 7 bits, not bytes"),
        ({"top": "struct wide_t { bit<4096> v; }"}, "p4c accepts at most 2048"),
        ({"top": "const bit<4> K = 16;"}, "16 does not fit bit<4>"),
        ({"top": "struct h_t { }"}, "type h_t is declared twice"),
        ({"locals": "Gone() g;", "apply": "g.apply();"}, "the program has no control Gone"),
        ({"top": "#include <other.p4>", "apply": "nowhere = 1;"}, "nowhere is not declared"),
    ],
)
def test_declarations_that_do_not_run_are_refused(parts: dict[str, str], reason: str) -> None:
    with pytest.raises(P4Error, match=reason):
        switch(**parts)


SEND = "action send(bit<8> v) { meta.x = v; }"


def listed(entries: str, key: str = "meta.y: exact;") -> str:
    keys = f"key = {{ {key} }} actions = {{ send; NoAction; }}"
    return (
        f"{SEND} table t {{ {keys} const entries = {{ {entries} }} default_action = NoAction(); }}"
    )


def test_constant_entries_are_looked_up_and_never_changed() -> None:
    table = listed("3: send(8w7); (8w4): send(9);")
    for y, x in ((3, 7), (4, 9), (5, 1)):
        body = f"meta.x = 1; meta.y = {y}; t.apply();"
        assert after(locals=table, apply=body).value("metadata.x") == x
    running = switch(locals=table, apply="meta.x = 1; meta.y = 3; t.apply();")
    for command in ("table_add I.t I.send 5 => 1", "table_clear I.t", "table_modify I.t I.send 0 1",
                    "table_set_default I.t I.send 1"):  # fmt: skip
        with pytest.raises(P4Error, match=r"table I\.t has constant entries"):
            running.load(command)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (listed("3: send(8w7); 3: send(8w8);"), "already has an entry"),
        (listed("3: send();"), "send takes 1 numbers"),
        (listed("3: send(1, 2);"), "send takes 1 numbers"),
        (listed("3: send(meta.y);"), "numbers alone"),
        (listed("3: send(256);"), "256 does not fit bit<8>"),
        (listed("256: send(1);"), "256 does not fit bit<8>"),
        (listed("3: gone(1);"), "no action gone"),
        (listed("3: send(1);", "meta.y: exact; meta.w: exact;"), "need one exact key"),
        (listed("3: send(1);", "meta.y: ternary;"), "need one exact key"),
    ],
)
def test_constant_entries_that_cannot_be_are_refused(table: str, reason: str) -> None:
    with pytest.raises(P4Error, match=reason):
        switch(locals=table, apply="meta.y = 1; t.apply();")


def test_controls_work_on_what_they_are_given() -> None:
    inner = "control Inner(inout h_t one, in meta_t m) { apply { one.a = one.a + m.w; } }"
    two = "Inner() first; Inner() second;"
    body = "meta.w = 2; hdr.other.setValid(); hdr.other.b = 0; hdr.other.a = 7;"
    body += "first.apply(hdr.h, meta); second.apply(hdr.other, meta);"
    outcome = switch(controls=inner, locals=two, apply=body).process(b"\0\1\0\0", 0)
    assert (outcome.value("headers.h.a"), outcome.value("headers.other.a")) == (3, 9)
    same = "control Inner(inout h_t one, inout h_t two) { apply { } }"
    with pytest.raises(P4Error, match="takes a variable twice"):
        switch(controls=same, locals="Inner() first;", apply="first.apply(hdr.h, hdr.h);")
    with pytest.raises(P4Error, match="first is applied twice"):
        switch(controls=inner, locals=two, apply=body.replace("second", "first"))


def chain(stages: int, neurons: int) -> str:
    masks = ("0x55", "0x33", "0x0f", "0xff", "0x55", "0x33", "0x0f", "0xff")
    lines = [
        f"meta.{v} = (meta.{v} & {m}) + ((meta.{v} >> 1) & {m});"
        for v in ("x", "y", "z")[:neurons]
        for m in masks[:stages]
    ]
    return "".join(lines)


def test_chained_stages_in_one_action_are_refused() -> None:
    switch(locals="action fine() {" + chain(1, 3) + "}")
    for neurons in (1, 3):
        with pytest.raises(P4Error, match="after copy propagation"):
            switch(locals="action stages() {" + chain(8, neurons) + "}")
    with pytest.raises(P4Error, match=r"control I .* after copy propagation"):
        switch(apply=chain(8, 1))


SUME = """
#include <core.p4>
#include <sume_switch.p4>
header h_t { bit<16> a; }
struct headers_t { h_t h; }
struct meta_t { bit<8> x; bit<300> key; }
struct digest_t { bit<%(digest)s> d; }
parser TopParser(packet_in b, out headers_t hdr, out meta_t meta, out digest_t digest,
                 inout sume_metadata_t sume_metadata) {
    state start { b.extract(hdr.h); transition accept; }
}
control TopPipe(inout headers_t hdr, inout meta_t meta, inout digest_t digest,
                inout sume_metadata_t sume_metadata) {
    %(locals)s
    apply { port_width(); %(apply)s }
}
control TopDeparser(packet_out b, in headers_t hdr, in meta_t meta, inout digest_t digest,
                    inout sume_metadata_t sume_metadata) { apply { b.emit(hdr.h); } }
SimpleSumeSwitch(TopParser(), TopPipe(), TopDeparser()) main;
"""
PORT = "action port_width() { sume_metadata.dst_port = sume_metadata.src_port << 1; }"


def sume(apply: str = "", locals_: str = "", digest: int = 256) -> Switch:
    return Switch(SUME % {"apply": apply, "locals": PORT + locals_, "digest": digest})


def test_sume_forwards_to_the_ports_that_are_set() -> None:
    outcome = sume().process(b"abcd", 1)
    assert (outcome.port, outcome.packet) == (2, b"abcd")
    assert sume("sume_metadata.dst_port = 0;").process(b"abcd", 1).port is None


def test_sume_takes_digests_of_256_bits() -> None:
    with pytest.raises(P4Error, match="digest data has 248 bits, not 256"):
        sume(digest=248)


def test_sume_metadata_starts_undefined() -> None:
    with pytest.raises(P4Error, match=r"metadata.x is read before it is written"):
        sume("sume_metadata.dst_port = meta.x;").process(b"abcd", 1)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "main",
        "#include <core.p4>",
        "Foo() main;",
        "V1Switch() main;",
        "\\x00",
        "/*",
        "@" * 5000,
        "#include <core.p4>\n#include <v1model.p4>\nV1Switch(A(), B(), C(), D(), E(), F()) main;",
    ],
)
def test_text_that_is_no_program_is_one_clear_error(source: str) -> None:
    with pytest.raises(P4Error):
        Switch(source)


def test_deep_nesting_is_one_clear_error() -> None:
    with pytest.raises(P4Error, match="nested too deeply"):
        switch(apply="meta.x = " + "~" * 20000 + "8w1;")
    assert value("(" * 500 + "40w7" + ")" * 500) == 7


METERED = {
    "locals": """
        @name(".rates")
        meter(2, MeterType.bytes) rates;
        action police(bit<32> which) { rates.execute_meter(which, meta.x); }
        table tenant { key = { hdr.h.a: exact; } actions = { police; NoAction; }
            size = 4; default_action = NoAction(); }
    """,
    "apply": "tenant.apply();",
}


def colours(packets: list[tuple[int, int]], *commands: str) -> list[int]:
    """Colours of packets of some bytes that come at some microseconds."""
    metered = switch(**METERED)
    metered.load("\n".join(("table_add I.tenant I.police 1 => 1", *commands)))
    sent = [(b"\0\1".ljust(size, b"\0"), now) for size, now in packets]
    return [metered.process(packet, 0, now).value("metadata.x") for packet, now in sent]


def test_a_meter_marks_by_two_rates() -> None:
    """Green, yellow and red are 0, 1 and 2; both buckets start full (RFC 2698)."""
    packets = [(40, now) for now in (0, 0, 0, 0, 10, 20, 10**9)] + [(101, 2 * 10**9)]
    assert colours(packets) == [0] * 8  # without rates
    seen = colours(packets, "meter_set_rates rates 1 1.5:80 2:120")
    assert seen == [0, 0, 1, 2, 2, 1, 0, 1]
    assert colours(packets, "meter_set_rates rates 0 1:1 1:1") == [0] * 8  # another's


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("meter_set_rates rates 2 1:1 1:1", "no meter 2"),
        ("meter_set_rates other 0 1:1 1:1", "no meter other"),
        ("meter_set_rates rates 0 2:1 1:1", "below the committed rate"),
        ("meter_set_rates rates 0 1:1", "two rates, got 1"),
        ("meter_set_rates rates 0 1:1 x", "RATE:BURST"),
        ("meter_set_rates rates 0 1/0:1 1:1", "RATE:BURST"),
        ("meter_set_rates rates 0 inf:1 inf:1", "RATE:BURST"),
        ("meter_set_rates rates 0 0:1 1:1", "RATE:BURST"),
        ("meter_set_rates rates 0x0 1:1 1:1", "not a decimal number for an index"),
        ("meter_set_rates rates 0 1:0x1 1:1", "not a decimal number for a burst"),
    ],
)
def test_rates_that_a_meter_does_not_take_are_refused(line: str, reason: str) -> None:
    with pytest.raises(P4Error, match=reason):
        colours([], line)


def test_a_resubmitted_packet_keeps_its_list_and_comes_as_it_was() -> None:
    text = V1MODEL % (
        dict.fromkeys(PARTS, "")
        | {
            "locals": "action again() { resubmit_preserving_field_list(1); }",
            "apply": """
                meta.y = meta.y + 1; meta.x = meta.x + 1; hdr.h.b = hdr.h.b + 1;
                if (meta.x != 3) { again(); }
            """,
        }
    )
    text = text.replace("bit<8> x;", "@field_list(1) bit<8> x;")
    outcome = Switch(text).process(b"\x12\x34\x56\x78", 0)
    assert len(outcome.passes) == 3
    assert [outcome.value("metadata.x", i) for i in range(3)] == [1, 2, 3]
    assert [outcome.value("metadata.y", i) for i in range(3)] == [1, 1, 1]
    assert (outcome.port, outcome.packet) == (1, b"\x12\x34\x56\x79")
    with pytest.raises(P4Error, match="more than 256 times"):
        Switch(text.replace("meta.x != 3", "meta.wide != 3")).process(b"\x12\x34\x56\x78", 0)
    egress = text.replace("I(), E()", "E(), I()")
    with pytest.raises(P4Error, match="only the ingress may resubmit"):
        Switch(egress)


def test_a_range_matches_by_priority() -> None:
    table = {
        "locals": """
            action set(bit<8> v) { meta.x = v; }
            table t { key = { hdr.h.a: exact; hdr.h.b: range; } actions = { set; NoAction; }
                size = 8; default_action = NoAction(); }
        """,
        "apply": "t.apply();",
    }
    ranged = switch(**table)
    ranged.load("table_add I.t I.set 1 0x10->0x20 => 7 2\ntable_add I.t I.set 1 0x15->0x15 => 8 1")

    def seen(a: int, b: int) -> int:
        return ranged.process(bytes((0, a, 0, b)), 0).value("metadata.x")

    assert [seen(1, b) for b in (0x0F, 0x10, 0x14, 0x15, 0x20, 0x21)] == [0, 7, 7, 8, 7, 0]
    assert seen(2, 0x15) == 0
    for line, reason in (
        ("table_add I.t I.set 1 3 => 7 2", "LEAST->GREATEST"),
        ("table_add I.t I.set 1 4->3 => 7 2", "LEAST->GREATEST"),
        ("table_add I.t I.set 1 3->0x10000 => 7 2", "does not fit"),
        ("table_add I.t I.set 1->2 3->4 => 7 2", "expected a number"),
        ("table_add I.t NoAction 1 3->4 =>", "priority must follow"),
        ("table_add I.t NoAction 1 3->4 => 0x1", "priority must follow"),
        ("table_add I.t NoAction 1 3->4 => 2147483648", "not a decimal number for a priority"),
    ):
        with pytest.raises(P4Error, match=reason):
            ranged.load(line)


def test_a_ternary_key_matches_by_priority() -> None:
    table = {
        "locals": """
            action set(bit<8> v) { meta.x = v; }
            table t { key = { hdr.h.b: ternary; } actions = { set; NoAction; }
                size = 8; default_action = NoAction(); }
        """,
        "apply": "t.apply();",
    }
    masked = switch(**table)
    masked.load(
        "table_add I.t I.set 0x10&&&0xf0 => 7 2\n"
        "table_add I.t I.set 0x15&&&0x0f => 8 1\n"  # bits outside the mask become 0
        "table_add I.t I.set 0x8000&&&0x8000 => 9 3"
    )

    def seen(b: int) -> int:
        return masked.process(bytes((0, 0, *b.to_bytes(2, "big"))), 0).value("metadata.x")

    assert [seen(b) for b in (0x10, 0x1F, 0x15, 0x25, 0x20, 0x8000, 0x8012)] == [
        7, 7, 8, 8, 0, 9, 7,
    ]  # fmt: skip
    for line, reason in (
        ("table_add I.t I.set 3 => 7 2", "VALUE&&&MASK"),
        ("table_add I.t I.set 3->4 => 7 2", "VALUE&&&MASK"),
        ("table_add I.t I.set 1&&&2&&&3 => 7 2", "VALUE&&&MASK"),
        ("table_add I.t I.set 1&&&0x10000 => 7 2", "does not fit"),
        ("table_add I.t NoAction 1&&&1 =>", "priority must follow"),
        ("table_add I.t I.set 0x1f&&&0xf0 => 7 2", "already has an entry"),
    ):
        with pytest.raises(P4Error, match=reason):
            masked.load(line)
