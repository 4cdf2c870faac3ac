// SPDX-License-Identifier: Apache-2.0
// The reorder buffer of each tenant. Results wait by their packet's sequence number until all
// branches of the packet have a result and all packets before it have left.
module n3ic_card_results #(
    parameter TENANTS  = 2,
    parameter QUEUE_W  = 2,
    parameter GRAPH_W  = 1,
    parameter SEQ_W    = 5,
    parameter BEATS_W  = 7,
    parameter BRANCH_W = 1,
    parameter BRANCHES = 1,
    parameter RESULT_W = 60
) (
    input  wire                         clk,
    input  wire                         rst,
    // A packet was admitted; the branches that its graph lacks count as done
    input  wire                         admit,
    input  wire [QUEUE_W-1:0]           admit_queue,
    input  wire [SEQ_W-1:0]             admit_seq,
    input  wire [GRAPH_W-1:0]           admit_graph,
    input  wire [BEATS_W:0]             admit_beats,
    input  wire [BRANCHES-1:0]          admit_done,
    // A branch is done
    input  wire                         done,
    input  wire [QUEUE_W-1:0]           done_queue,
    input  wire [SEQ_W-1:0]             done_seq,
    input  wire [BRANCH_W-1:0]          done_branch,
    input  wire [RESULT_W-1:0]          done_result,
    // Queues whose next packet can leave
    output reg  [TENANTS:0]             ready,
    input  wire                         leave,
    input  wire [QUEUE_W-1:0]           leave_queue,
    output wire [(SEQ_W+1)*(TENANTS+1)-1:0] leave_next,
    output wire [GRAPH_W-1:0]           leave_graph,
    output wire [BEATS_W:0]             leave_beats,
    output wire [RESULT_W*BRANCHES-1:0] leave_results
);
    localparam QUEUES = TENANTS + 1;
    localparam SLOTS  = 1 << SEQ_W;  // of a queue
    localparam WORD_W = GRAPH_W + BEATS_W + 1 + RESULT_W * BRANCHES;
    // What leaves if the queue's turn comes: graph and beats, and the results of all branches.
    wire [WORD_W-1:0] words [0:QUEUES-1];
    assign {leave_graph, leave_beats, leave_results} = words[leave_queue];
    genvar b, q;
    generate
        for (q = 0; q < QUEUES; q = q + 1) begin : g_queue
            // One bit more than a sequence number tells a full queue from an empty one.
            reg  [SEQ_W:0] first;   // the next one to leave
            reg  [SEQ_W:0] behind;  // the next one to be admitted
            wire admits = admit && admit_queue == q;
            wire leaves = leave && leave_queue == q;
            assign leave_next[(SEQ_W+1)*q +: SEQ_W+1] = first;
            // Each memory is read a clock before its queue can be ready. A word that is written
            // meanwhile is read again, as its queue is ready a clock later.
            (* no_rw_check *)
            reg [GRAPH_W+BEATS_W:0] packets [0:SLOTS-1];
            reg [GRAPH_W+BEATS_W:0] packet;
            assign words[q][WORD_W-1 -: GRAPH_W+BEATS_W+1] = packet;
            wire [BRANCHES-1:0] all_done;
            for (b = 0; b < BRANCHES; b = b + 1) begin : g_branch
                (* no_rw_check *)
                reg [RESULT_W-1:0] results [0:SLOTS-1];
                reg [RESULT_W-1:0] result;
                assign words[q][RESULT_W*b +: RESULT_W] = result;
                // A branch is done if its two bits differ: so each memory has one writer.
                reg admitted_bits [0:SLOTS-1];
                reg done_bits     [0:SLOTS-1];
                integer i;
                initial for (i = 0; i < SLOTS; i = i + 1) begin
                    admitted_bits[i] = 1'b0;
                    done_bits[i]     = 1'b0;
                end
                assign all_done[b] = admitted_bits[first[SEQ_W-1:0]] != done_bits[first[SEQ_W-1:0]];
                wire mine = done && done_queue == q && done_branch == b;
                always @(posedge clk) begin
                    if (mine) results[done_seq] <= done_result;
                    if (mine) done_bits[done_seq] <= !admitted_bits[done_seq];
                    if (admits) admitted_bits[admit_seq] <= done_bits[admit_seq] ^ admit_done[b];
                    result <= results[first[SEQ_W-1:0]];
                end
            end
            always @(posedge clk) begin
                if (admits) packets[admit_seq] <= {admit_graph, admit_beats};
                packet <= packets[first[SEQ_W-1:0]];
                if (admits) behind <= behind + 1'b1;
                if (leaves) first <= first + 1'b1;
                // A packet that leaves now is no longer ready.
                ready[q] <= first != behind && &all_done && !leaves;
                if (rst) behind <= {(SEQ_W + 1) {1'b0}};
                if (rst) first <= {(SEQ_W + 1) {1'b0}};
            end
        end
    endgenerate
endmodule
