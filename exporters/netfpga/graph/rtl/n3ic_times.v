// SPDX-License-Identifier: Apache-2.0
// Multiplies two probabilities in fixed point, and rounds to nearest. Three clocks, one for each
// register in a DSP block.
module n3ic_times #(
    parameter A_W      = 8,
    parameter B_W      = 8,
    parameter W        = 8,  // bits of the product that may be set
    parameter FRACTION = 8
) (
    input  wire clk,
    input  wire [A_W-1:0] a,
    input  wire [B_W-1:0] b,
    output reg  [W-1:0] product
);
    localparam EXACT_W = A_W + B_W > W + FRACTION ? A_W + B_W : W + FRACTION;
    localparam [EXACT_W-1:0] HALF = {{EXACT_W - 1 {1'b0}}, 1'b1} << (FRACTION - 1);

    reg [A_W-1:0] a1;
    reg [B_W-1:0] b1;
    reg [A_W+B_W-1:0] exact;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [EXACT_W-1:0] rounded = exact + HALF;
    /* verilator lint_on UNUSEDSIGNAL */
    always @(posedge clk) begin
        a1      <= a;
        b1      <= b;
        exact   <= a1 * b1;
        product <= rounded[FRACTION +: W];
    end
endmodule
