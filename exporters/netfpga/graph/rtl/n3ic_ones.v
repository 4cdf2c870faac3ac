// SPDX-License-Identifier: Apache-2.0
// Counts the ones among up to six bits: two full adders and an adder of their carries, so that each
// output is one look-up table. One clock.
module n3ic_ones #(
    parameter N = 6,
    parameter W = 3
) (
    input  wire clk,
    input  wire [N-1:0] bits,
    output reg  [W-1:0] ones
);
    wire [5:0] padded;
    assign padded[N-1:0] = bits;
    generate
        if (N < 6) begin : g_pad
            assign padded[5:N] = {6 - N {1'b0}};
        end
    endgenerate
    wire sum_low    = padded[0] ^ padded[1] ^ padded[2];
    wire sum_high   = padded[3] ^ padded[4] ^ padded[5];
    wire carry_low  = padded[0] & padded[1] | padded[2] & (padded[0] | padded[1]);
    wire carry_high = padded[3] & padded[4] | padded[5] & (padded[3] | padded[4]);
    wire carry      = sum_low & sum_high;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [2:0] count = {
        carry_low & carry_high | carry & (carry_low | carry_high),
        carry_low ^ carry_high ^ carry,
        sum_low ^ sum_high
    };
    /* verilator lint_on UNUSEDSIGNAL */
    always @(posedge clk) ones <= count[W-1:0];
endmodule
