// SPDX-License-Identifier: Apache-2.0
// A load balancer: a hash of the 5-tuple picks a bucket, and the bucket a backend. A packet a clock,
// three clocks each.
module n3ic_task_balancer #(
    parameter HEAD_W = 352,
    parameter MEM    = "balancer.mem"  // a bucket per line
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              in_valid,
    output wire              in_ready,
    input  wire [HEAD_W-1:0] in_head,
    output reg               out_valid,
    input  wire              out_ready,
    output reg  [HEAD_W-1:0] out_head,
    output wire [15:0]       out_class,
    input  wire              wr_en,
    input  wire [15:0]       wr_addr,
    input  wire [31:0]       wr_data
);
    localparam BUCKETS = 64;
    localparam WORDS   = 3;
    wire                commit;
    wire [11:0]         index;
    wire [32*WORDS-1:0] entry;
    n3ic_card_entry #(.WORDS(WORDS)) words (
        .clk(clk), .wr_en(wr_en), .wr_addr(wr_addr), .wr_data(wr_data), .commit(commit),
        .index(index), .entry(entry)
    );
    (* ram_style = "distributed" *)
    reg [32*WORDS-1:0] buckets [0:BUCKETS-1];
    initial $readmemh(MEM, buckets);
    always @(posedge clk) if (commit && index < BUCKETS) buckets[index[5:0]] <= entry;

    /* verilator lint_off UNUSEDSIGNAL */
    wire [31:0] hash;
    reg [32*WORDS-1:0] bucket;
    /* verilator lint_on UNUSEDSIGNAL */
    /* verilator lint_off PINCONNECTEMPTY */
    n3ic_card_tuple #(.HEAD_W(HEAD_W)) tuple (
        .head(in_head), .source(), .destination(), .ports(), .protocol(), .hash(hash)
    );
    /* verilator lint_on PINCONNECTEMPTY */
    reg              has1, has2;
    reg [HEAD_W-1:0] head1, head2;
    reg [5:0]        at;
    wire             step = !out_valid || out_ready;
    assign in_ready  = step;
    assign out_class = 16'd0;

    // --- the packet of a backend ------------------------------------------------------------------
    wire [31:0] old = {head2[8*30 +: 8], head2[8*31 +: 8], head2[8*32 +: 8], head2[8*33 +: 8]};
    wire [15:0] checksum;
    n3ic_card_checksum sum (
        .checksum({head2[8*24 +: 8], head2[8*25 +: 8]}), .old(old), .now(bucket[31:0]),
        .result(checksum)
    );
    reg [HEAD_W-1:0] sent;
    integer b;
    always @* begin
        sent = head2;
        if (bucket[64]) begin
            for (b = 0; b < 4; b = b + 1) begin
                sent[8*b +: 8]      = bucket[32+8*(3-b) +: 8];
                sent[8*(30+b) +: 8] = bucket[8*(3-b) +: 8];
            end
            sent[8*4 +: 16]  = {bucket[80 +: 8], bucket[88 +: 8]};
            sent[8*24 +: 16] = {checksum[7:0], checksum[15:8]};
        end
    end
    always @(posedge clk) begin
        if (step) begin
            has1      <= in_valid;
            head1     <= in_head;
            at        <= hash[5:0];
            has2      <= has1;
            head2     <= head1;
            bucket    <= buckets[at];
            out_valid <= has2;
            out_head  <= sent;
        end
        if (rst) begin
            has1      <= 1'b0;
            has2      <= 1'b0;
            out_valid <= 1'b0;
        end
    end
endmodule
