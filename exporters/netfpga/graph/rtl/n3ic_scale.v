// SPDX-License-Identifier: Apache-2.0
// Multiplies a probability by a constant, exactly. Two clocks.
module n3ic_scale #(
    parameter A_W = 8,
    parameter W   = 8,
    parameter [W-1:0] BY = 1
) (
    input  wire clk,
    input  wire [A_W-1:0] a,
    output reg  [W-1:0] product
);
    reg [A_W-1:0] a1;
    always @(posedge clk) begin
        a1      <= a;
        product <= a1 * BY;
    end
endmodule
