// SPDX-License-Identifier: Apache-2.0
// Drives n3ic_features with integers from a file, and writes the bits that it computes.
// +in=FILE: the features as one number, in words of 32 bits, the highest first. +out=FILE: the bits, one row per line.
`timescale 1ns / 1ps
module n3ic_features_tb #(
    parameter IN_W  = 512,
    parameter OUT_W = 256
`ifdef VERILATOR
) (
    input wire clk
);
`else
);
    reg clk = 1'b0;
    always #2.5 clk = !clk;
`endif
    integer in_file, out_file, scanned, clock, w;
    reg  [8*1024-1:0] in_name, out_name;
    // Simulators cannot read or print numbers of thousands of bits, so files hold words.
    localparam IN_WORDS = (IN_W + 31) / 32;
    localparam OUT_WORDS = (OUT_W + 31) / 32;
    reg  [IN_W-1:0]   values;
    /* verilator lint_off UNUSEDSIGNAL */ // the highest word may be a part of one
    reg  [32*IN_WORDS-1:0] scan;
    /* verilator lint_on UNUSEDSIGNAL */
    reg  [31:0]       word;
    reg               have, more, rst;
    wire              in_ready, out_valid;
    wire [OUT_W-1:0]  bits;
    wire [32*OUT_WORDS-1:0] padded = bits;

    n3ic_features features (
        .clk(clk), .rst(rst), .in_valid(have), .in_ready(in_ready), .in_values(values),
        .out_valid(out_valid), .out_ready(1'b1), .out_bits(bits)
    );

    initial begin
        if (!$value$plusargs("in=%s", in_name)) $display("+in=FILE is missing");
        if (!$value$plusargs("out=%s", out_name)) $display("+out=FILE is missing");
        in_file  = $fopen(in_name, "r");
        out_file = $fopen(out_name, "w");
        if (in_file == 0 || out_file == 0) begin
            $display("cannot open the values or the results");
            $finish;
        end
        clock = 0;
        have  = 1'b0;
        more  = 1'b1;
        rst   = 1'b1;
    end

    always @(posedge clk) begin
        clock <= clock + 1;
        rst   <= clock < 4;
        if (!rst) begin
            if (in_ready) begin
                have <= 1'b0;
                if (more) begin
                    scanned = 1;
                    for (w = IN_WORDS - 1; w >= 0 && scanned == 1; w = w - 1) begin
                        scanned = $fscanf(in_file, "%h", word);
                        scan[32*w +: 32] = word;
                    end
                    values <= scan[IN_W-1:0];
                    have   <= scanned == 1;
                    more   <= scanned == 1;
                end
            end
            if (out_valid) begin
                for (w = OUT_WORDS - 1; w >= 0; w = w - 1)
                    $fwrite(out_file, "%h", padded[32*w +: 32]);
                $fwrite(out_file, "\n");
            end
            if (!more && !have && !out_valid) begin
                $fclose(out_file);
                $finish;
            end
        end
    end
endmodule
