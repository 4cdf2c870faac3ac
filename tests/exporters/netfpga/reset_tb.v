// SPDX-License-Identifier: Apache-2.0
// Drives n3ic_core by a program: writes, swaps, resets and inputs, in any order and at any clock.
//
// +program=FILE: lines of OPERATION A B in hexadecimal:
//   0 write word B to address A, 1 swap, 2 reset for A clocks, 3 write word B to address A in a reset,
//   4 offer vector A until it is taken, 5 wait A clocks, 6 wait until wr_busy is 0, 7 begin phase A.
// +vectors=FILE: one vector a line. +out=FILE: lines PHASE TAG MODEL SCORES.
`timescale 1ns / 1ps
module reset_tb #(
    parameter N_IN    = 1,
    parameter SCORES  = 1,
    parameter WR_AW   = 1,
    parameter MODEL_W = 1,
    parameter VECTORS = 1
);
    reg clk = 1'b0;
    always #2.5 clk = !clk;
    reg [8*1024-1:0] program_name, vectors_name, out_name;
    reg [N_IN-1:0]   vectors [0:VECTORS-1];
    integer          program_file, out_file, operation, a, b, phase, k;
    reg              rst, in_valid, wr_en, wr_swap;
    reg [N_IN-1:0]   in_bits;
    reg [7:0]        in_tag;
    reg [WR_AW-1:0]  wr_addr;
    reg [31:0]       wr_data;
    wire             in_ready, out_valid;
    wire [7:0]       out_tag;
    wire [SCORES-1:0] out_scores;
`ifdef N3IC_WRITE_PORT
    wire             wr_busy;
    wire [31:0]      out_model;
`else
    wire             wr_busy = 1'b0;
    wire [31:0]      out_model = 32'd0;
`endif
    n3ic_core #(.TAG_W(8)) core (
        .clk(clk), .rst(rst), .in_valid(in_valid), .in_ready(in_ready), .in_bits(in_bits),
`ifdef N3IC_WRITE_PORT
        .wr_en(wr_en), .wr_addr(wr_addr), .wr_data(wr_data), .wr_swap(wr_swap), .wr_busy(wr_busy),
        .out_model(out_model),
`endif
`ifdef N3IC_MODELS
        .in_model({MODEL_W {1'b1}}), .wr_model({MODEL_W {1'b1}}),
`endif
        .in_tag(in_tag), .out_valid(out_valid), .out_tag(out_tag), .out_scores(out_scores)
    );

    always @(posedge clk)
        if (out_valid) $fwrite(out_file, "%0d %h %h %h\n", phase, out_tag, out_model, out_scores);

    initial begin
        if (!$value$plusargs("program=%s", program_name)) $display("+program=FILE is missing");
        if (!$value$plusargs("vectors=%s", vectors_name)) $display("+vectors=FILE is missing");
        if (!$value$plusargs("out=%s", out_name)) $display("+out=FILE is missing");
        program_file = $fopen(program_name, "r");
        out_file     = $fopen(out_name, "w");
        $readmemh(vectors_name, vectors);
        phase    = 0;
        rst      = 1'b1;
        in_valid = 1'b0;
        wr_en    = 1'b0;
        wr_swap  = 1'b0;
        repeat (8) @(posedge clk);
        rst <= 1'b0;
        while ($fscanf(program_file, "%h %h %h", operation, a, b) == 3) begin
            case (operation)
                0: begin
                    wr_en   <= 1'b1;
                    wr_addr <= a;
                    wr_data <= b;
                    @(posedge clk);
                    wr_en <= 1'b0;
                end
                1: begin
                    wr_swap <= 1'b1;
                    @(posedge clk);
                    wr_swap <= 1'b0;
                end
                2: begin
                    rst <= 1'b1;
                    repeat (a) @(posedge clk);
                    rst <= 1'b0;
                end
                3: begin
                    rst     <= 1'b1;
                    wr_en   <= 1'b1;
                    wr_addr <= a;
                    wr_data <= b;
                    @(posedge clk);
                    rst   <= 1'b0;
                    wr_en <= 1'b0;
                end
                4: begin
                    in_valid <= 1'b1;
                    in_bits  <= vectors[a];
                    in_tag   <= a;
                    @(posedge clk);
                    while (!in_ready) @(posedge clk);
                    in_valid <= 1'b0;
                end
                5: repeat (a) @(posedge clk);
                6: begin
                    @(posedge clk);
                    while (wr_busy) @(posedge clk);
                end
                7: phase = a;
            endcase
        end
        $fclose(out_file);
        $finish;
    end
endmodule
