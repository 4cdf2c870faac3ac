// SPDX-License-Identifier: Apache-2.0
// The reorder buffer of each tenant. Results wait by their packet's sequence number until all
// branches of the packet have a result and all packets before it have left.
//
// Each memory has one writer, so that it is a RAM: a branch of a packet is done if its bit in
// `done_bits` is that in `due_bits`.
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
    output wire [BEATS_W:0]             leave_beats,
    // Its graph and results, one clock later
    input  wire                         step,        // the path moves on
    output reg  [GRAPH_W-1:0]           left_graph,
    output wire [RESULT_W*BRANCHES-1:0] left_results
);
    localparam QUEUES = TENANTS + 1;
    localparam SLOTS  = 1 << (QUEUE_W + SEQ_W);
    localparam DEPTH  = 1 << SEQ_W;
    (* no_rw_check *)
    reg [GRAPH_W-1:0]       graphs [0:SLOTS-1];
    // One bit more than a sequence number tells a full queue from an empty one.
    reg [SEQ_W:0]           first   [0:QUEUES-1];  // the next one to leave
    reg [SEQ_W:0]           behind  [0:QUEUES-1];  // the next one to be admitted
    wire [QUEUE_W+SEQ_W-1:0] leave_slot = {leave_queue, first[leave_queue][SEQ_W-1:0]};
    wire [BEATS_W:0] head_beats [0:QUEUES-1];
    assign leave_beats = head_beats[leave_queue];
    integer i;
    always @(posedge clk) begin
        if (admit) graphs[{admit_queue, admit_seq}] <= admit_graph;
        if (step) left_graph <= graphs[leave_slot];
        for (i = 0; i < QUEUES; i = i + 1) begin
            if (admit && admit_queue == i) behind[i] <= behind[i] + 1'b1;
            if (leave && leave_queue == i) first[i] <= first[i] + 1'b1;
            if (rst) behind[i] <= {(SEQ_W + 1) {1'b0}};
            if (rst) first[i] <= {(SEQ_W + 1) {1'b0}};
        end
    end

    wire [QUEUES*BRANCHES-1:0] all_done;
    genvar b, q;
    generate
        for (b = 0; b < BRANCHES; b = b + 1) begin : g_branch
            (* no_rw_check *)
            reg  [RESULT_W-1:0] results [0:SLOTS-1];
            reg  [RESULT_W-1:0] left_result;
            wire                mine = done && done_branch == b;
            assign left_results[RESULT_W*b +: RESULT_W] = left_result;
            always @(posedge clk) begin
                if (mine) results[{done_queue, done_seq}] <= done_result;
                if (step) left_result <= results[leave_slot];
            end
            for (q = 0; q < QUEUES; q = q + 1) begin : g_queue
                reg due_bits  [0:DEPTH-1];
                reg done_bits [0:DEPTH-1];
                integer k;
                initial for (k = 0; k < DEPTH; k = k + 1) done_bits[k] = 1'b0;
                assign all_done[QUEUES*b+q] =
                    due_bits[first[q][SEQ_W-1:0]] == done_bits[first[q][SEQ_W-1:0]];
                always @(posedge clk) begin
                    if (admit && admit_queue == q)
                        due_bits[admit_seq] <= done_bits[admit_seq] ^ !admit_done[b];
                    if (mine && done_queue == q) done_bits[done_seq] <= due_bits[done_seq];
                end
            end
        end
        for (q = 0; q < QUEUES; q = q + 1) begin : g_ready
            // A queue is ready two clocks after its first packet changes or is admitted, so there
            // is time to read.
            (* no_rw_check *)
            reg [BEATS_W:0] beats [0:DEPTH-1];
            reg [BEATS_W:0] head;
            assign head_beats[q] = head;
            always @(posedge clk) begin
                if (admit && admit_queue == q) beats[admit_seq] <= admit_beats;
                head <= beats[first[q][SEQ_W-1:0]];
            end
            wire [BRANCHES-1:0] done_here;
            for (b = 0; b < BRANCHES; b = b + 1) begin : g_done
                assign done_here[b] = all_done[QUEUES*b+q];
            end
            assign leave_next[(SEQ_W+1)*q +: SEQ_W+1] = first[q];
            // A packet that leaves now is no longer ready.
            always @(posedge clk)
                ready[q] <= first[q] != behind[q] && &done_here && !(leave && leave_queue == q);
        end
    endgenerate
endmodule
