// SPDX-License-Identifier: Apache-2.0
// Drives n3ic_core with vectors from a file, and writes its answers. Both simulators run this bench:
// Icarus alone, Verilator with a clock from C++.
//
// +in=FILE: 32-bit words in hexadecimal, the highest of a vector first. +out=FILE: lines of
//   i OFFERED TAKEN                        clocks in which a vector was offered and taken
//   o CLOCK TAG CLASS SCORES MARGIN SHUNT TRACE  a result came
// +alone=N: the first N vectors run one at a time, for the latency; the rest back to back.
`timescale 1ns / 1ps
module n3ic_tb #(
    parameter N_IN      = 256,
    parameter N_CLASSES = 2,
    parameter CLASS_W   = 1,
    parameter SCORE_W   = 6,
    parameter TRACE_W   = 1,
    parameter TAG_W     = 16,
    parameter WR_AW     = 1,
    parameter WR_DW     = 1
`ifdef VERILATOR
) (
    input wire clk
);
`else
);
    reg clk = 1'b0;
    always #2.5 clk = !clk;
`endif
    localparam WORDS       = (N_IN + 31) / 32;
    localparam SCORE_WORDS = (SCORE_W * N_CLASSES + 31) / 32;
    localparam TRACE_WORDS = (TRACE_W + 31) / 32;
    integer in_file, out_file, alone, sent, received, clock, scanned, idle, offered, w;
    reg  [8*1024-1:0]   in_name, out_name;
    reg  [N_IN-1:0]     vector;
    reg  [32*WORDS-1:0] scan;
    reg  [31:0]         word;
    reg                 have, more, rst;

    wire                         in_ready, out_valid;
    wire [TAG_W-1:0]             out_tag;
    wire [CLASS_W-1:0]           out_class;
    wire [SCORE_W*N_CLASSES-1:0] out_scores;
    wire [SCORE_W-1:0]           out_margin;
    wire                         out_shunt;
    wire [TRACE_W-1:0]           out_trace;
    // Simulators cannot read or print numbers of thousands of bits, so files hold words.
    wire [32*SCORE_WORDS-1:0] scores = out_scores;
    wire [32*TRACE_WORDS-1:0] trace  = out_trace;
`ifndef N3IC_HIDDEN
    assign out_trace = {TRACE_W {1'b0}};
`endif
`ifndef N3IC_SHUNTING
    assign out_shunt = 1'b0;
`endif
`ifdef N3IC_WRITE_PORT
    wire busy;
`endif
    wire in_valid = have && (sent >= alone || sent == received);

    n3ic_core #(.TAG_W(TAG_W)) core (
        .clk(clk), .rst(rst), .in_valid(in_valid), .in_ready(in_ready), .in_bits(vector),
        .in_tag(sent[TAG_W-1:0]), .out_valid(out_valid), .out_tag(out_tag), .out_class(out_class),
        .out_scores(out_scores), .out_margin(out_margin)
`ifdef N3IC_HIDDEN
        , .out_trace(out_trace)
`endif
`ifdef N3IC_SHUNTING
        , .out_shunt(out_shunt)
`endif
`ifdef N3IC_WRITE_PORT
        , .wr_en(1'b0), .wr_addr({WR_AW {1'b0}}), .wr_data({WR_DW {1'b0}}), .wr_swap(1'b0),
        .wr_busy(busy)
`endif
    );

    initial begin
        if (!$value$plusargs("in=%s", in_name)) $display("+in=FILE is missing");
        if (!$value$plusargs("out=%s", out_name)) $display("+out=FILE is missing");
        if (!$value$plusargs("alone=%d", alone)) alone = 0;
        in_file  = $fopen(in_name, "r");
        out_file = $fopen(out_name, "w");
        if (in_file == 0 || out_file == 0) begin
            $display("cannot open the vectors or the results");
            $finish;
        end
        sent     = 0;
        received = 0;
        clock    = 0;
        idle     = 0;
        offered  = -1;
        have     = 1'b0;
        more     = 1'b1;
        rst      = 1'b1;
    end

    always @(posedge clk) begin
        clock <= clock + 1;
        rst   <= clock < 40;
        if (!rst) begin
            if (in_valid && in_ready) begin
                $fwrite(out_file, "i %0d %0d\n", (offered < 0) ? clock : offered, clock);
                sent <= sent + 1;
            end
            if (in_valid && !in_ready) offered <= (offered < 0) ? clock : offered;
            else offered <= -1;
            if (more && (!have || (in_valid && in_ready))) begin
                scanned = 1;
                for (w = WORDS - 1; w >= 0 && scanned == 1; w = w - 1) begin
                    scanned = $fscanf(in_file, "%h", word);
                    scan[32*w +: 32] = word;
                end
                vector <= scan[N_IN-1:0];
                have   <= scanned == 1;
                more   <= scanned == 1;
            end else if (in_valid && in_ready) have <= 1'b0;
            if (out_valid) begin
                $fwrite(out_file, "o %0d %h %h ", clock, out_tag, out_class);
                for (w = SCORE_WORDS - 1; w >= 0; w = w - 1)
                    $fwrite(out_file, "%h", scores[32*w +: 32]);
                $fwrite(out_file, " %h %h ", out_margin, out_shunt);
                for (w = TRACE_WORDS - 1; w >= 0; w = w - 1)
                    $fwrite(out_file, "%h", trace[32*w +: 32]);
                $fwrite(out_file, "\n");
                received <= received + 1;
            end
            idle <= (out_valid || (in_valid && in_ready)) ? 0 : idle + 1;
            if (!more && !have && received == sent || idle == 1000000) begin
                $fclose(out_file);
                $finish;
            end
        end
    end
endmodule
