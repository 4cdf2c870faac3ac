// SPDX-License-Identifier: Apache-2.0
// Joins the results of a packet's branches to its answer: ten bytes each of model, class, margin.
//   0 both: all results, in the order of the branches
//   1 vote: the class of most branches, the lowest among ties; its margin is its lead in votes
//     over the next class, its model that of the first branch with the class
//   2 most certain: the result with the largest margin, the first branch among ties
module n3ic_card_join #(
    parameter BRANCHES = 1,
    parameter RESULTS  = 1,  // ten bytes each
    parameter MARGIN_W = 12
) (
    input  wire [1:0]                           kind,
    input  wire [BRANCHES-1:0]                  here,     // branches that the graph has
    input  wire [(48+MARGIN_W)*BRANCHES-1:0]    results,  // model, class, margin; first one lowest
    output reg  [80*RESULTS-1:0]                answer,   // the first one highest
    output wire [15:0]                          verdict,  // of the first one
    output wire [31:0]                          margin
);
    localparam W = 48 + MARGIN_W;
    integer a, b, votes, best_votes, next_votes;
    reg [79:0] one, best;
    always @* begin
        answer     = {80 * RESULTS {1'b0}};
        one        = 80'd0;
        best       = {results[16+MARGIN_W +: 32], results[MARGIN_W +: 16],
                      {(32 - MARGIN_W) {1'b0}}, results[0 +: MARGIN_W]};
        votes      = 0;
        best_votes = 0;
        next_votes = 0;
        for (a = 0; a < BRANCHES; a = a + 1) begin
            one = {results[W*a+16+MARGIN_W +: 32], results[W*a+MARGIN_W +: 16],
                   {(32 - MARGIN_W) {1'b0}}, results[W*a +: MARGIN_W]};
            if (kind == 2'd0 && a < RESULTS && here[a])
                answer[80*(RESULTS-1-a) +: 80] = one;
            if (kind == 2'd2 && here[a] && one[31:0] > best[31:0]) best = one;
            if (kind == 2'd1 && here[a]) begin
                votes = 0;
                for (b = 0; b < BRANCHES; b = b + 1)
                    if (here[b] && results[W*b+MARGIN_W +: 16] == one[47:32]) votes = votes + 1;
                // A class is counted again at each of its branches; `one != best` keeps the
                // winner's own later branches from counting as a second class.
                if (best_votes == 0 || (one[47:32] != best[47:32]
                    && (votes > best_votes || (votes == best_votes && one[47:32] < best[47:32])))) begin
                    next_votes = best_votes;
                    best       = one;
                    best_votes = votes;
                end else if (one[47:32] != best[47:32] && votes > next_votes) next_votes = votes;
            end
        end
        if (kind == 2'd1) best[31:0] = best_votes - next_votes;
        if (kind != 2'd0) answer[80*(RESULTS-1) +: 80] = best;
    end
    assign verdict = answer[80*(RESULTS-1)+32 +: 16];
    assign margin  = answer[80*(RESULTS-1) +: 32];
endmodule
