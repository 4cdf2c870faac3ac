# SPDX-License-Identifier: Apache-2.0
"""What a tenant's Verilog may hold: nothing that reaches outside its own modules."""

import shutil
import subprocess

import pytest

from n3ic.systems.card.netfpga.user_verilog import UserVerilogError, modules_of

DESIGN = """\
`timescale 1ns / 1ps
`default_nettype none
`define WIDTH 4
// doubles what comes; see the specification
module doubler #(parameter W = `WIDTH) (input wire clk, input wire [W-1:0] a, output reg [W:0] y);
    localparam BITS = $clog2(W);
    wire [W-1:0] b;
    genvar i;
    generate
        for (i = 0; i < W; i = i + 1) begin : lane
            wire t;
            assign t = a[i];
            assign b[i] = lane[i].t;
        end
    endgenerate
    function [W:0] twice(input [W-1:0] x);
        twice = x + x;
    endfunction
    always @(posedge clk) y <= /* two's complement */ $signed(twice(b));
endmodule
module /* beside */ second(a, b);
    input a;
    output b;
    wire c;
    third inner (.a(a), .b(c));
    assign b = inner.b;
endmodule
module third (input a, output b);
    assign b = ~a;
endmodule
"""


def with_line(line, where="    genvar i;"):
    assert DESIGN.count(where) == 1
    return DESIGN.replace(where, f"{line}\n{where}")


def test_a_design_is_taken_and_its_modules_are_named():
    assert modules_of("doubler.v", DESIGN) == ("doubler", "second", "third")


@pytest.mark.parametrize(
    "line",
    [
        '    initial $system("id");',
        '    initial $fdisplay(1, "x");',
        '    initial $readmemh("/etc/passwd", m);',
        '    initial $c("system(0)");',
        # an identifier that a preprocessor pastes together
        '`define S(x) $``x\n    initial `S(system)("id");',
        '`define S(x) $x\n    initial `S(system)("id");',
        '`define D $\n    initial `D system("id");',
        '`define S $signed``tem\n    initial `S("id");',
        '`include "/etc/passwd"',
        '`define I "x"\n`pragma protect',
        "`systemc_header\n#include <cstdlib>\n`verilog",
        '`line 1 "/etc/passwd" 0',
        "`unknown",
        '`ifdef VERILATOR\n    import "DPI-C" function int system(input string s);\n`endif',
        '    import "DPI-C" function int system(input string command);',
        '    import "DPI-C" context task run();',
        "    initial force n3ic_top.clk = 0;",
        "    assign b[0] = other.secret;",
        "    assign b[0] = second.inner.b;",  # declared in another module only
        "    assign b[0] = $root.top.secret;",
        "    assign b[0] = \\other .secret;",
        "    defparam inner.W = 3;",
        "    module n3ic_top(input a); endmodule",
        "    bind n3ic_top third evil();",
        "    class c; endclass",
    ],
)
def test_what_reaches_outside_is_refused(line):
    with pytest.raises(UserVerilogError, match="expected"):
        modules_of("doubler.v", with_line(line))


@pytest.mark.parametrize(
    "text",
    [
        "bind n3ic_top third evil(); module third(); endmodule",
        "package p; endpackage module m(); endmodule",
        "program p; endprogram",
        "interface i; endinterface",
        "function int f(); return 1; endfunction",
        'import "DPI-C" function int system(input string s); module m(); endmodule',
        "primitive p(output o, input a); table 0 : 0; endtable endprimitive",
        "module m(; endmodule",
        "module m(); initial begin endmodule",
        "extern module n3ic_top(input a);",
        "config c; design m; endconfig",
    ],
)
def test_a_source_holds_modules_alone(text):
    with pytest.raises(UserVerilogError, match="expected"):
        modules_of("m.v", text)


def test_modules_that_a_macro_makes_are_named():
    text = "`define M module\n`M n3ic_evil(); endmodule module a(); endmodule"
    assert modules_of("m.v", text) == ("n3ic_evil", "a")


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
def test_the_refused_paste_is_real(tmp_path):
    """Icarus Verilog makes a system task of it, which the text does not hold."""
    (tmp_path / "m.v").write_text("`define S(x) $``x\n`S(system)\n")
    command = ["iverilog", "-E", "-o", "out.v", "m.v"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert "$system" in (tmp_path / "out.v").read_text()
