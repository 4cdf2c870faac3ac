// SPDX-License-Identifier: Apache-2.0
// A FIFO in block RAM. A register at the output holds the oldest word.
module n3ic_packet_fifo #(
    parameter WIDTH   = 417,
    parameter DEPTH_W = 9  // 2^DEPTH_W words
) (
    input  wire             clk,
    input  wire             rst,
    output wire             in_ready,
    input  wire             in_valid,
    input  wire [WIDTH-1:0] in_data,
    output reg              out_valid,
    input  wire             out_ready,
    output reg  [WIDTH-1:0] out_data
);
    // Reads follow writes by at least one clock, so they never collide (no_rw_check).
    (* ram_style = "block", no_rw_check *)
    reg [WIDTH-1:0] words [0:(1 << DEPTH_W)-1];
    reg [DEPTH_W:0] head, tail;
    wire full  = head[DEPTH_W-1:0] == tail[DEPTH_W-1:0] && head[DEPTH_W] != tail[DEPTH_W];
    wire empty = head == tail;
    wire read  = !empty && (!out_valid || out_ready);
    assign in_ready = !full;
    always @(posedge clk) begin
        if (in_valid && !full) begin
            words[tail[DEPTH_W-1:0]] <= in_data;
            tail <= tail + 1'b1;
        end
        if (read) begin
            out_data <= words[head[DEPTH_W-1:0]];
            head     <= head + 1'b1;
        end
        out_valid <= read || (out_valid && !out_ready);
        if (rst) begin
            head      <= {(DEPTH_W + 1) {1'b0}};
            tail      <= {(DEPTH_W + 1) {1'b0}};
            out_valid <= 1'b0;
        end
    end
endmodule
