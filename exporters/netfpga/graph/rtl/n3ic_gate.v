// SPDX-License-Identifier: Apache-2.0
// One look-up table of the FPGA: any function of up to six bits. One clock.
module n3ic_gate #(
    parameter N = 6,
    parameter [(1 << N)-1:0] TABLE = 0  // the value for each index
) (
    input  wire clk,
    input  wire [N-1:0] at,
    output reg  value
);
    always @(posedge clk) value <= TABLE[at];
endmodule
