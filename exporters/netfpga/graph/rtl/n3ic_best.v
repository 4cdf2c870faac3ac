// SPDX-License-Identifier: Apache-2.0
// Finds the best and second best of two groups of scores in two clocks. A larger number is a better
// score. Group b holds the higher classes, so a tie goes to a.
module n3ic_best #(
    parameter W       = 8,
    parameter CLASS_W = 1
) (
    input  wire clk,
    input  wire [W-1:0] a_best,
    input  wire [W-1:0] a_second,
    input  wire [CLASS_W-1:0] a_class,
    input  wire [W-1:0] b_best,
    input  wire [W-1:0] b_second,
    input  wire [CLASS_W-1:0] b_class,
    output reg  [W-1:0] best,
    output reg  [W-1:0] second,
    output reg  [CLASS_W-1:0] best_class
);
    reg [W-1:0] a_best1, a_second1, b_best1, b_second1;
    reg [CLASS_W-1:0] a_class1, b_class1;
    reg b_wins, a_keeps, b_keeps;  // keeps: the second of the winner's group is second of both
    always @(posedge clk) begin
        {a_best1, a_second1, a_class1} <= {a_best, a_second, a_class};
        {b_best1, b_second1, b_class1} <= {b_best, b_second, b_class};
        b_wins     <= b_best > a_best;
        a_keeps    <= a_second > b_best;
        b_keeps    <= b_second > a_best;
        best       <= b_wins ? b_best1 : a_best1;
        best_class <= b_wins ? b_class1 : a_class1;
        second     <= b_wins ? (b_keeps ? b_second1 : a_best1) : (a_keeps ? a_second1 : b_best1);
    end
endmodule
