// SPDX-License-Identifier: Apache-2.0
// Round-robin arbiter.
module n3ic_card_turns #(
    parameter N = 2
) (
    input  wire         clk,
    input  wire         rst,
    input  wire [N-1:0] asks,
    input  wire         taken,  // the turn is used
    output wire [N-1:0] turn    // one of those that ask
);
    reg  [N-1:0] behind;  // those that come after the last one in the round
    wire [N-1:0] first = asks & behind;
    wire [N-1:0] from  = |first ? first : asks;
    // x & -x keeps the lowest bit that is set.
    assign turn = from & (~from + 1'b1);
    always @(posedge clk)
        if (rst) behind <= {N {1'b0}};
        else if (taken) behind <= ~(turn | (turn - 1'b1));
endmodule
