// SPDX-License-Identifier: Apache-2.0
// The packet store: a bounded queue of beats per tenant, and one for packets that name no graph.
//
// A packet is admitted if its tenant's queue has room; otherwise the whole packet is dropped. So no
// tenant takes another tenant's room. The sequence number of an admitted packet in its queue
// addresses its input, its results and its length.
module n3ic_card_store #(
    parameter TENANTS = 2,  // queue TENANTS is that of the packets that name no graph
    parameter QUEUE_W = 2,  // clog2(TENANTS + 1)
    parameter GRAPH_W = 1,
    parameter DATA_W  = 256,
    parameter BEATS_W = 7,  // log2 of the beats of a queue
    parameter SEQ_W   = 5   // log2 of the packets of a queue
) (
    input  wire                           clk,
    input  wire                           rst,
    // Judged beats
    input  wire                           beat_valid,
    input  wire [416:0]                   beat,
    input  wire                           asks,
    input  wire [GRAPH_W-1:0]             graph,
    input  wire [QUEUE_W-1:0]             tenant,
    input  wire [DATA_W-1:0]              data,
    // Packets that were admitted, and those that were not
    output reg                            admit,
    output reg  [QUEUE_W-1:0]             admit_queue,
    output reg  [SEQ_W-1:0]               admit_seq,
    output reg  [GRAPH_W-1:0]             admit_graph,
    output reg  [DATA_W-1:0]              admit_data,
    output reg  [BEATS_W:0]               admit_beats,
    output reg                            overflow,
    // Sequence numbers of the next packets to leave
    input  wire [(SEQ_W+1)*(TENANTS+1)-1:0] leave_next,
    // Beats are read
    input  wire                           rd_en,
    input  wire                           rd_move,  // a beat of the queue is used up
    input  wire [QUEUE_W-1:0]             rd_queue,
    output reg  [416:0]                   rd_beat
);
    localparam QUEUES = TENANTS + 1;
    (* ram_style = "block", no_rw_check *)
    reg [416:0] words [0:(QUEUES << BEATS_W)-1];
    reg [BEATS_W:0] head [0:QUEUES-1];
    reg [BEATS_W:0] tail [0:QUEUES-1];
    reg [SEQ_W:0]   next [0:QUEUES-1];

    // --- a beat and its queue -----------------------------------------------------------------
    reg                valid;
    reg  [416:0]       word;
    reg  [QUEUE_W-1:0] queue;
    reg  [GRAPH_W-1:0] of_graph;
    reg  [DATA_W-1:0]  input_data;
    always @(posedge clk) begin
        valid      <= beat_valid && !rst;
        word       <= beat;
        queue      <= asks ? tenant : TENANTS[QUEUE_W-1:0];
        of_graph   <= graph;
        input_data <= data;
    end

    // --- admission ------------------------------------------------------------------------------
    wire [SEQ_W:0]   leave [0:QUEUES-1];
    genvar q;
    generate
        for (q = 0; q < QUEUES; q = q + 1) begin : g_queue
            assign leave[q] = leave_next[(SEQ_W+1)*q +: SEQ_W+1];
        end
    endgenerate
    reg              in_packet, lost;  // of a packet whose last beat has not come yet
    reg  [BEATS_W:0] count;         // its beats
    // Beats of a packet are written behind the tail, which moves only with the last beat. So a
    // packet that is dropped halfway leaves nothing behind.
    wire [BEATS_W:0] place = tail[queue] + count;
    wire [BEATS_W:0] level = place - head[queue];
    wire [SEQ_W:0]   under_way = next[queue] - leave[queue];
    wire no_room = level[BEATS_W] || under_way[SEQ_W] || count[BEATS_W];
    wire drop    = (in_packet && lost) || no_room;
    wire last    = word[416];
    wire write   = valid && !drop;
    integer i;
    always @(posedge clk) begin
        if (write) words[{queue, place[BEATS_W-1:0]}] <= word;
        if (valid) begin
            in_packet <= !last;
            lost   <= drop;
            count  <= (last || drop) ? {(BEATS_W + 1) {1'b0}} : count + 1'b1;
        end
        if (write && last) begin
            tail[queue] <= place + 1'b1;
            next[queue] <= next[queue] + 1'b1;
        end
        admit       <= write && last && !rst;
        admit_queue <= queue;
        admit_seq   <= next[queue][SEQ_W-1:0];
        admit_graph <= of_graph;
        admit_data  <= input_data;
        admit_beats <= count + 1'b1;
        overflow    <= valid && no_room && !(in_packet && lost) && !rst;
        if (rd_move) head[rd_queue] <= head[rd_queue] + 1'b1;
        if (rd_en) rd_beat <= words[{rd_queue, head[rd_queue][BEATS_W-1:0]}];
        if (rst) begin
            in_packet <= 1'b0;
            count  <= {(BEATS_W + 1) {1'b0}};
            for (i = 0; i < QUEUES; i = i + 1) begin
                head[i] <= {(BEATS_W + 1) {1'b0}};
                tail[i] <= {(BEATS_W + 1) {1'b0}};
                next[i] <= {(SEQ_W + 1) {1'b0}};
            end
        end
    end
endmodule
