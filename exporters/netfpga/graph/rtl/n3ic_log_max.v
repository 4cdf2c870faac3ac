// SPDX-License-Identifier: Apache-2.0
// Computes the larger of two logarithms, and log-add's correction log2(1 + 2^-distance). Four clocks.
module n3ic_log_max #(
    parameter W      = 8,  // bits of an operand
    parameter SIGNED = 0,  // 1: operands are in two's complement, 0: unsigned
    parameter AT_W   = 4,  // bits of the distances within the table
    parameter MORE_W = 4
) (
    input  wire clk,
    input  wire [W-1:0] a,
    input  wire [W-1:0] b,
    output reg  [W-1:0] larger,
    output wire [MORE_W-1:0] more
);
    wire [W:0] wide_a = {a[W-1] && SIGNED != 0, a};
    wire [W:0] wide_b = {b[W-1] && SIGNED != 0, b};

    // 1: both differences.
    reg [W-1:0] a1, b1, over_a;
    reg [W:0]   over_b;
    always @(posedge clk) begin
        a1     <= a;
        b1     <= b;
        over_a <= b - a;
        over_b <= wide_a - wide_b;
    end

    // 2: the difference that is not negative. Beyond the table the correction is 0.
    wire         less     = over_b[W];
    wire [W-1:0] distance = less ? over_a : over_b[W-1:0];
    wire [AT_W+W-1:0] padded = {{AT_W {1'b0}}, distance};
    reg  [W-1:0]    larger2;
    reg  [AT_W-1:0] at2;
    reg             reached2;
    always @(posedge clk) begin
        larger2 <= less ? b1 : a1;
        at2     <= padded[AT_W-1:0];
        reached2   <= padded[AT_W+W-1:AT_W] == {W {1'b0}};
    end

    // 3 and 4: the table.
    reg [W-1:0] larger3;
    always @(posedge clk) begin
        larger3 <= larger2;
        larger  <= larger3;
    end
    n3ic_log_table log_table (.clk(clk), .distance(at2), .reached(reached2), .more(more));
endmodule
