// SPDX-License-Identifier: Apache-2.0
// A firewall by 5-tuple: the first rule that matches allows or denies a packet. A packet a clock,
// two clocks each.
module n3ic_task_firewall #(
    parameter HEAD_W = 352,
    parameter MEM    = "firewall.mem"  // a rule per line
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              in_valid,
    output wire              in_ready,
    input  wire [HEAD_W-1:0] in_head,
    output reg               out_valid,
    input  wire              out_ready,
    output reg  [HEAD_W-1:0] out_head,
    output reg  [15:0]       out_class,
    input  wire              wr_en,
    input  wire [15:0]       wr_addr,
    input  wire [31:0]       wr_data
);
    localparam ENTRIES = 32;
    localparam WORDS   = 9;  // source, destination, ports, protocol; masks; flags

    // --- rules --------------------------------------------------------------------------------
    wire                commit;
    wire [11:0]         index;
    wire [32*WORDS-1:0] entry;
    n3ic_card_entry #(.WORDS(WORDS)) words (
        .clk(clk), .wr_en(wr_en), .wr_addr(wr_addr), .wr_data(wr_data), .commit(commit),
        .index(index), .entry(entry)
    );
    /* verilator lint_off UNUSEDSIGNAL */
    reg [32*WORDS-1:0] rules [0:ENTRIES-1];
    /* verilator lint_on UNUSEDSIGNAL */
    initial $readmemh(MEM, rules);
    always @(posedge clk) if (commit && index < ENTRIES) rules[index[4:0]] <= entry;

    // --- which match ----------------------------------------------------------------------------
    wire [103:0] key;  // protocol, ports, destination, source
    /* verilator lint_off PINCONNECTEMPTY */
    n3ic_card_tuple #(.HEAD_W(HEAD_W)) tuple (
        .head(in_head), .source(key[31:0]), .destination(key[63:32]), .ports(key[95:64]),
        .protocol(key[103:96]), .hash()
    );
    /* verilator lint_on PINCONNECTEMPTY */
    genvar r;
    reg  [ENTRIES-1:0] hits, denies;
    reg                has;
    reg  [HEAD_W-1:0]  head;
    wire               step = !out_valid || out_ready;
    assign in_ready = step;
    generate
        for (r = 0; r < ENTRIES; r = r + 1) begin : g_rule
            wire [103:0] differs = (key ^ rules[r][103:0]) & rules[r][128 +: 104];
            always @(posedge clk) if (step) begin
                hits[r]   <= rules[r][256] && differs == 104'd0;
                denies[r] <= rules[r][257];
            end
        end
    endgenerate

    // --- the first of them ----------------------------------------------------------------------
    wire [ENTRIES-1:0] first = hits & (~hits + 1'b1);
    always @(posedge clk) begin
        if (step) begin
            has       <= in_valid;
            head      <= in_head;
            out_valid <= has;
            out_head  <= head;
            out_class <= |(first & denies) ? 16'hfffe : 16'd0;
        end
        if (rst) begin
            has       <= 1'b0;
            out_valid <= 1'b0;
        end
    end
endmodule
