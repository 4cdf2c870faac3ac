// SPDX-License-Identifier: Apache-2.0
// Chooses the replica that takes a row: row mod count, by long division, one bit per clock.
module n3ic_cluster_turn (
    input  wire        clk,
    input  wire        rst,
    input  wire        start,
    input  wire [15:0] row,
    input  wire [4:0]  count,  // 1 to 16
    output wire        ready,
    output wire [3:0]  turn
);
    reg  [15:0] left;
    reg  [4:0]  steps, rest;
    wire [5:0]  next = {rest, left[15]};
    /* verilator lint_off UNUSEDSIGNAL */
    wire [5:0]  less = next - {1'b0, count};
    /* verilator lint_on UNUSEDSIGNAL */
    assign ready = steps == 5'd0;
    assign turn  = rest[3:0];
    always @(posedge clk) begin
        if (start) begin
            left  <= row;
            rest  <= 5'd0;
            steps <= 5'd16;
        end else if (!ready) begin
            left  <= {left[14:0], 1'b0};
            rest  <= (next >= {1'b0, count}) ? less[4:0] : next[4:0];
            steps <= steps - 5'd1;
        end
        if (rst) steps <= 5'd0;
    end
endmodule
