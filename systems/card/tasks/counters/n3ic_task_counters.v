// SPDX-License-Identifier: Apache-2.0
// Counts packets and bytes in classes by a hash of the 5-tuple. A packet a clock, two clocks each.
module n3ic_task_counters #(
    parameter HEAD_W = 352
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
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire [15:0]       rd_addr,
    /* verilator lint_on UNUSEDSIGNAL */
    output reg  [31:0]       rd_data
);
    /* verilator lint_off UNUSEDSIGNAL */
    wire [31:0] hash;
    /* verilator lint_on UNUSEDSIGNAL */
    /* verilator lint_off PINCONNECTEMPTY */
    n3ic_card_tuple #(.HEAD_W(HEAD_W)) tuple (
        .head(in_head), .source(), .destination(), .ports(), .protocol(), .hash(hash)
    );
    /* verilator lint_on PINCONNECTEMPTY */
    (* ram_style = "distributed" *)
    reg [63:0]       counts [0:255];  // bytes, packets
    reg              has;
    reg [HEAD_W-1:0] head;
    reg [7:0]        at;
    wire             step = !out_valid || out_ready;
    wire [63:0]      old  = counts[at];
    integer i;
    initial for (i = 0; i < 256; i = i + 1) counts[i] = 64'd0;
    assign in_ready  = step;
    assign out_class = 16'd0;
    always @(posedge clk) begin
        rd_data <= rd_addr[0] ? counts[rd_addr[8:1]][63:32] : counts[rd_addr[8:1]][31:0];
        if (step) begin
            has       <= in_valid;
            head      <= in_head;
            at        <= hash[7:0];
            out_valid <= has;
            out_head  <= head;
            if (has)
                counts[at] <= {old[63:32] + {16'd0, head[8*16 +: 8], head[8*17 +: 8]},
                               old[31:0] + 32'd1};
        end
        if (rst) begin
            has       <= 1'b0;
            out_valid <= 1'b0;
        end
    end
endmodule
