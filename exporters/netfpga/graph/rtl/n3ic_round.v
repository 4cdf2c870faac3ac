// SPDX-License-Identifier: Apache-2.0
// Rounds an exact product to nearest. One clock.
module n3ic_round #(
    parameter A_W      = 8,
    parameter W        = 8,
    parameter FRACTION = 8
) (
    input  wire clk,
    input  wire [A_W-1:0] a,
    output reg  [W-1:0] rounded
);
    localparam SUM_W = (A_W > W + FRACTION ? A_W : W + FRACTION) + 1;
    localparam [SUM_W-1:0] HALF = {{SUM_W - 1 {1'b0}}, 1'b1} << (FRACTION - 1);
    /* verilator lint_off UNUSEDSIGNAL */
    wire [SUM_W-1:0] sum = a + HALF;
    /* verilator lint_on UNUSEDSIGNAL */
    always @(posedge clk) rounded <= sum[FRACTION +: W];
endmodule
