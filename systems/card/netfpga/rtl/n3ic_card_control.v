// SPDX-License-Identifier: Apache-2.0
// Registers of the control plane: table of graphs, token buckets, regions, counters.
// Addresses are of 32-bit words: kind [15:12], index [11:3], word [2:0]; a read takes one clock.
//   0 graph:   word 0: on [31], tenant [30:24], open to source ports [23:16], UID [15:0]
//   1 tenant:  word 0: rate in 1/65536 beats per clock; word 1: size of the bucket in beats
//   2 region:  word 0: hold [0], reset [1], restart a task that was cut off [2];
//              read: hold and reset, [4] idle, [5] in reset, [6] a task is cut off
//   3 counters of a tenant, read-only: 0 packets admitted, 1 served beyond its guarantee,
//     2 dropped because its queue was full, 3 results, 4 decided by the host because a task was cut off, 5 packets that left
//   4 a word that a packet task counts, selected by a write: region [31:24], place in its chain
//     [23:16], address [15:0]; it can be read three clocks later
// (the index after the last tenant counts packets that name no graph; its word 1 counts those that
// named a graph closed to them)
module n3ic_card_control #(
    parameter TENANTS = 2,
    parameter QUEUE_W = 2,
    parameter GRAPHS  = 2,
    parameter REGIONS = 2,
    parameter [32*GRAPHS-1:0]  GRAPH_TABLE = 64'd0,  // as word 0 of each
    parameter [17*TENANTS-1:0] RATES       = 34'd0,
    parameter [12*TENANTS-1:0] BURSTS      = 24'd0,
    parameter [REGIONS-1:0]    HELD        = 2'd0    // regions that begin held in reset
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire                      cfg_wr,
    input  wire [15:0]               cfg_addr,
    input  wire [31:0]               cfg_wdata,
    output reg  [31:0]               cfg_rdata,
    // Settings
    output wire [GRAPHS-1:0]         on,
    output wire [16*GRAPHS-1:0]      uids,
    output wire [8*GRAPHS-1:0]       sources,
    output wire [QUEUE_W*GRAPHS-1:0] tenants,
    output wire [17*TENANTS-1:0]     rates,
    output wire [12*TENANTS-1:0]     bursts,
    output reg  [REGIONS-1:0]        hold,
    output reg  [REGIONS-1:0]        region_rst,
    output reg  [REGIONS-1:0]        restart,
    input  wire [REGIONS-1:0]        idle,
    input  wire [REGIONS-1:0]        cut,
    // Counted events, one pulse each
    input  wire                      admitted,
    input  wire [QUEUE_W-1:0]        admitted_queue,
    input  wire                      overflow,
    input  wire [QUEUE_W-1:0]        dropped_queue,
    input  wire                      beyond,
    input  wire [QUEUE_W-1:0]        beyond_queue,
    input  wire                      denied,
    input  wire                      done,
    input  wire [QUEUE_W-1:0]        done_queue,
    input  wire                      failed,
    input  wire                      left,
    input  wire [QUEUE_W-1:0]        left_queue,
    // Words that packet tasks count
    output reg  [31:0]               rd_at,
    input  wire [31:0]               rd_data
);
    localparam QUEUES = TENANTS + 1;
    wire [3:0] kind  = cfg_addr[15:12];
    wire [8:0] index = cfg_addr[11:3];
    wire [2:0] word  = cfg_addr[2:0];

    genvar g, t, r, q;
    generate
        for (g = 0; g < GRAPHS; g = g + 1) begin : g_graph
            reg [31:0] entry;
            always @(posedge clk)
                if (rst) entry <= GRAPH_TABLE[32*g +: 32];
                else if (cfg_wr && kind == 4'd0 && index == g) entry <= cfg_wdata;
            assign on[g] = entry[31];
            assign uids[16*g +: 16] = entry[15:0];
            assign sources[8*g +: 8] = entry[23:16];
            assign tenants[QUEUE_W*g +: QUEUE_W] = entry[24 +: QUEUE_W];
        end
        for (t = 0; t < TENANTS; t = t + 1) begin : g_tenant
            reg [16:0] rate;
            reg [11:0] burst;
            always @(posedge clk)
                if (rst) begin
                    rate  <= RATES[17*t +: 17];
                    burst <= BURSTS[12*t +: 12];
                end else if (cfg_wr && kind == 4'd1 && index == t) begin
                    if (word == 3'd0) rate <= cfg_wdata[16:0];
                    if (word == 3'd1) burst <= cfg_wdata[11:0];
                end
            assign rates[17*t +: 17] = rate;
            assign bursts[12*t +: 12] = burst;
        end
    endgenerate

    // A region is reset only when it is empty, so no packet in flight is lost.
    reg [REGIONS-1:0] reset, held1, held2;
    generate
        for (r = 0; r < REGIONS; r = r + 1) begin : g_region
            always @(posedge clk) begin
                restart[r] <= cfg_wr && kind == 4'd2 && index == r && cfg_wdata[2];
                if (cfg_wr && kind == 4'd2 && index == r) {reset[r], hold[r]}
                    <= {cfg_wdata[1], cfg_wdata[0] || cfg_wdata[1]};
                // A packet sent in the clock before the hold takes two clocks until the region is
                // not idle.
                held1[r]      <= hold[r];
                held2[r]      <= held1[r];
                region_rst[r] <= rst || (reset[r] && held1[r] && held2[r] && idle[r])
                              || (region_rst[r] && reset[r]);
                if (rst) {reset[r], hold[r]} <= {2 {HELD[r]}};
            end
        end
    endgenerate

    wire [32*6*QUEUES-1:0] counters;
    generate
        for (q = 0; q < QUEUES; q = q + 1) begin : g_queue
            wire [5:0] event_now = {
                left && left_queue == q, failed && done_queue == q, done && done_queue == q,
                overflow && dropped_queue == q,
                (beyond && beyond_queue == q) || (q == TENANTS && denied),
                admitted && admitted_queue == q
            };
            for (t = 0; t < 6; t = t + 1) begin : g_counter
                reg [31:0] counter;
                always @(posedge clk)
                    if (rst) counter <= 32'd0;
                    else if (event_now[t]) counter <= counter + 1'b1;
                assign counters[32*(6*q+t) +: 32] = counter;
            end
        end
    endgenerate
    always @(posedge clk) if (cfg_wr && kind == 4'd4) rd_at <= cfg_wdata;
    integer i, k;
    reg [31:0] read;
    always @* begin
        read = (kind == 4'd4) ? rd_data : 32'd0;
        for (i = 0; i < GRAPHS; i = i + 1)
            if (kind == 4'd0 && index == i)
                read = {on[i], {(7 - QUEUE_W) {1'b0}}, tenants[QUEUE_W*i +: QUEUE_W],
                        sources[8*i +: 8], uids[16*i +: 16]};
        for (i = 0; i < TENANTS; i = i + 1)
            if (kind == 4'd1 && index == i)
                read = (word == 3'd0) ? {15'd0, rates[17*i +: 17]} : {20'd0, bursts[12*i +: 12]};
        for (i = 0; i < REGIONS; i = i + 1)
            if (kind == 4'd2 && index == i)
                read = {25'd0, cut[i], region_rst[i], idle[i], 2'd0, reset[i], hold[i]};
        for (i = 0; i < QUEUES; i = i + 1)
            for (k = 0; k < 6; k = k + 1)
                if (kind == 4'd3 && index == i && word == k) read = counters[32*(6*i+k) +: 32];
    end
    always @(posedge clk) cfg_rdata <= read;
endmodule
