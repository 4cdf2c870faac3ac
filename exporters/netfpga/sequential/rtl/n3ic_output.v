// SPDX-License-Identifier: Apache-2.0
// The second half of the output layer: adds the biases, and finds the best class and its margin.
// It takes one class per clock. The lowest index wins a tie.
module n3ic_output #(
    parameter CLASSES = 2,
    parameter GROUP_W = 1,
    parameter CLASS_W = 1,
    parameter W       = 5,  // bits of a count
    parameter SCORE_W = 6,  // bits of a score, two's complement
    parameter BLOCK   = 0,
    parameter BANK_W  = 1,  // bits of a bank's number
    parameter BIASES  = "biases.mem"
) (
    input  wire                       clk,
    input  wire                       rst,
    input  wire                       in_valid,
    input  wire [GROUP_W-1:0]         in_group,
    input  wire [W-1:0]               in_count,
    input  wire [BANK_W-1:0]          early_bank,
    input  wire [GROUP_W-1:0]         early_group,
    output reg                        out_valid,
    output reg  [CLASS_W-1:0]         out_class,
    output reg  [SCORE_W*CLASSES-1:0] out_scores,
    output reg  [SCORE_W-1:0]         out_margin,
    input  wire                       wr_en,
    input  wire [BANK_W-1:0]          wr_bank,
    input  wire [GROUP_W-1:0]         wr_group,
    input  wire [31:0]                wr_data
);
    localparam LAST   = CLASSES - 1;
    localparam SECOND = 1;

    /* verilator lint_off UNUSEDSIGNAL */
    wire [31:0] bias;
    /* verilator lint_on UNUSEDSIGNAL */
    n3ic_memory #(
        .WORDS(1), .ADDR_W(GROUP_W + BANK_W), .WORD_W(1), .BLOCK(BLOCK), .INIT(BIASES)
    ) bias_rows (
        .clk(clk), .wr_en(wr_en), .wr_row({wr_bank, wr_group}), .wr_word(1'b0),
        .wr_data(wr_data), .rd_row({early_bank, early_group}), .rd_data(bias)
    );

    // The loser of each comparison is ranked one clock later, so a clock has one comparison only.
    reg                        valid, done, ranked, ranks, ranks_first;
    reg          [GROUP_W-1:0] index;
    // With an inverted sign bit, scores compare as unsigned numbers: one carry chain is enough.
    localparam [SCORE_W-1:0] SIGN = {1'b1, {(SCORE_W - 1) {1'b0}}};
    reg          [SCORE_W-1:0] score, best, loser, second;
    reg  [SCORE_W*CLASSES-1:0] scores;
    reg          [CLASS_W-1:0] winner;
    reg          [SCORE_W-1:0] held_best;
    wire first = index == {GROUP_W {1'b0}};
    wire wins  = first || score > best;
    always @(posedge clk) begin
        valid <= in_valid && !rst;
        index <= in_group;
        score <= ({{(SCORE_W - W) {1'b0}}, in_count} + bias[SCORE_W-1:0]) ^ SIGN;
        if (valid) begin
            scores <= {score ^ SIGN, scores[SCORE_W*CLASSES-1:SCORE_W]};
            if (wins) best <= score;
            if (wins) winner <= index[CLASS_W-1:0];
        end
        ranks       <= valid && !first;
        ranks_first <= index == SECOND[GROUP_W-1:0];
        loser       <= wins ? best : score;
        done        <= valid && index == LAST[GROUP_W-1:0] && !rst;

        if (ranks && (ranks_first || loser > second)) second <= loser;
        ranked <= done && !rst;
        // Scores and class are stable for at least two clocks: the next ones come CLASSES clocks later.
        if (done) begin
            out_scores <= scores;
            out_class  <= winner;
            held_best  <= best;
        end

        out_valid <= ranked && !rst;
        if (ranked) out_margin <= held_best - second;
    end
endmodule
