// SPDX-License-Identifier: Apache-2.0
// Judges packets: finds the graph that each names, and its input field. Takes one beat per clock
// and never stalls. Beats leave in order, each with its packet's verdict.
//
// A packet names its graph by a UID: in bytes 18-19 of a frame of EtherType 0x2323, by the VLAN
// identifier of a tag before that type, or by its UDP destination port (IPv4 without options, no
// fragment). It must hold the whole input, and come from a port that the graph is open to.
module n3ic_card_ingress #(
    parameter GRAPHS   = 2,
    parameter GRAPH_W  = 1,
    parameter QUEUE_W  = 2,
    parameter DATA_W   = 256,  // head and input
    parameter HEAD_W   = 0,    // bits of the head: 44 bytes of headers, and those before the input
    parameter CARRIER  = 0,    // of the UID: 0 header, 1 VLAN tag, 2 UDP port
    parameter OFFSET   = 26,   // first byte of the input
    parameter NEED     = 58,   // bytes of a packet whose input is the longest
    parameter SIZES    = 1,    // different lengths of inputs
    parameter [16*SIZES-1:0]     BYTES   = 16'd32,  // the lengths in bytes
    parameter [SIZES*GRAPHS-1:0] HAS     = 2'b11,   // bit s * GRAPHS + g: graph g has length s
    parameter [15:0]             VALUE   = 16'h2323 // EtherType
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire [255:0]              s_axis_tdata,
    input  wire [31:0]               s_axis_tkeep,
    input  wire [127:0]              s_axis_tuser,
    input  wire                      s_axis_tvalid,
    input  wire                      s_axis_tlast,
    // Table of graphs
    input  wire [GRAPHS-1:0]         on,
    input  wire [16*GRAPHS-1:0]      uids,
    input  wire [8*GRAPHS-1:0]       sources,  // source ports in tuser that the graph accepts
    input  wire [QUEUE_W*GRAPHS-1:0] tenants,
    // Beats: last, tuser, tkeep, tdata
    output wire                      beat_valid,
    output wire [416:0]              beat,
    output wire                      asks,
    output wire                      denied,   // the graph does not accept the packet's source port
    output wire [GRAPH_W-1:0]        graph,
    output wire [QUEUE_W-1:0]        tenant,
    output wire [DATA_W-1:0]         data
);
    localparam FIELD_W   = DATA_W - HEAD_W;
    localparam LAST_BEAT = (NEED - 1) / 32;  // the beat in which a packet is judged at the latest
    localparam FRAME     = 32 * (LAST_BEAT + 1);
    localparam DEPTH_W   = $clog2(LAST_BEAT + 10);  // judging takes three clocks

    // --- the head of a packet -----------------------------------------------------------------
    reg  [7:0] in_beat;  // stops at LAST_BEAT + 1
    wire       at_judge = {24'd0, in_beat} == LAST_BEAT
                       || ({24'd0, in_beat} < LAST_BEAT && s_axis_tlast);
    /* verilator lint_off UNUSEDSIGNAL */
    reg  [8*FRAME-1:0] head, frame;  // byte b in [8*b +: 8]
    /* verilator lint_on UNUSEDSIGNAL */
    reg  [7:0]  beats;
    reg  [31:0] keep;
    reg  [7:0]  source;
    reg         judge1, judge2, judge3;
    integer b;
    always @(posedge clk) begin
        if (s_axis_tvalid) begin
            for (b = 0; b <= LAST_BEAT; b = b + 1) begin
                if ({24'd0, in_beat} == b) head[256*b +: 256] <= s_axis_tdata;
                frame[256*b +: 256] <= ({24'd0, in_beat} == b) ? s_axis_tdata : head[256*b +: 256];
            end
            beats   <= in_beat;
            keep    <= s_axis_tkeep;
            source  <= s_axis_tuser[23:16];
            in_beat <= s_axis_tlast ? 8'd0
                     : ({24'd0, in_beat} > LAST_BEAT) ? in_beat : in_beat + 8'd1;
        end
        judge1 <= s_axis_tvalid && at_judge && !rst;
        judge2 <= judge1 && !rst;
        judge3 <= judge2 && !rst;
        if (rst) in_beat <= 8'd0;
    end

    // --- which graph --------------------------------------------------------------------------
    wire        match;
    wire [15:0] uid;
    generate
        if (CARRIER == 2) begin : g_udp
            assign match = {frame[8*12 +: 8], frame[8*13 +: 8]} == 16'h0800
                        && frame[8*14 +: 8] == 8'h45
                        && {frame[8*20 +: 6], frame[8*21 +: 8]} == 14'd0
                        && frame[8*20+7] == 1'b0
                        && frame[8*23 +: 8] == 8'd17;
            assign uid = {frame[8*36 +: 8], frame[8*37 +: 8]};
        end else if (CARRIER == 1) begin : g_vlan
            assign match = {frame[8*12 +: 8], frame[8*13 +: 8]} == 16'h8100
                        && {frame[8*16 +: 8], frame[8*17 +: 8]} == VALUE;
            assign uid = {4'd0, frame[8*14 +: 4], frame[8*15 +: 8]};
        end else begin : g_header
            assign match = {frame[8*12 +: 8], frame[8*13 +: 8]} == VALUE;
            assign uid = {frame[8*18 +: 8], frame[8*19 +: 8]};
        end
    endgenerate
    wire [SIZES-1:0]        long_enough;
    wire [SIZES*FIELD_W-1:0] fields;
    wire [GRAPHS-1:0]       named, open, whole;
    genvar s, g, i;
    generate
        for (s = 0; s < SIZES; s = s + 1) begin : g_size
            localparam LENGTH = BYTES[16*s +: 16];
            localparam LAST   = OFFSET + LENGTH - 1;
            assign long_enough[s] = {24'd0, beats} > LAST / 32
                                 || ({24'd0, beats} == LAST / 32 && keep[LAST % 32]);
            // The field is one big-endian number, so bit 0 is in its last byte.
            for (i = 0; i < FIELD_W; i = i + 1) begin : g_bit
                if (i < 8 * LENGTH) begin : g_field
                    assign fields[FIELD_W*s+i] = frame[8*(LAST-i/8) + i%8];
                end else begin : g_pad
                    assign fields[FIELD_W*s+i] = 1'b0;
                end
            end
        end
        for (g = 0; g < GRAPHS; g = g + 1) begin : g_graph
            wire [SIZES-1:0] fits;
            for (s = 0; s < SIZES; s = s + 1) begin : g_fits
                assign fits[s] = HAS[s*GRAPHS+g] && long_enough[s];
            end
            assign whole[g] = |fits;
            assign open[g]  = |(sources[8*g +: 8] & source);
            assign named[g] = match && on[g] && uid == uids[16*g +: 16];
        end
    endgenerate

    // --- its number, tenant and input -----------------------------------------------------------
    wire [GRAPHS-1:0]       found = named & whole & open;
    reg  [GRAPHS-1:0]       hit;
    reg                     closed;
    reg  [SIZES*FIELD_W-1:0] fields2;
    reg                     asks3, denied3;
    reg  [GRAPH_W-1:0]      graph3;
    reg  [QUEUE_W-1:0]      tenant3;
    wire [DATA_W-1:0]       data3;
    reg  [FIELD_W-1:0]      field3;
    reg  [GRAPH_W-1:0]      number;
    reg  [QUEUE_W-1:0]      owner;
    reg  [FIELD_W-1:0]      field;
    integer k, j;
    always @* begin
        number = {GRAPH_W {1'b0}};
        owner  = {QUEUE_W {1'b0}};
        field  = {FIELD_W {1'b0}};
        for (k = 0; k < GRAPHS; k = k + 1)
            if (hit[k]) begin
                number = number | k[GRAPH_W-1:0];
                owner  = owner | tenants[QUEUE_W*k +: QUEUE_W];
            end
        for (j = 0; j < SIZES; j = j + 1)
            field = field | (fields2[FIELD_W*j +: FIELD_W] & {FIELD_W {|(hit & HAS[GRAPHS*j +: GRAPHS])}});
    end
    always @(posedge clk) begin
        hit     <= found & (~found + 1'b1);  // the first one, should two have the same UID
        closed  <= |(named & ~open);
        fields2 <= fields;
        asks3   <= |hit;
        denied3 <= closed;
        graph3  <= number;
        tenant3 <= owner;
        field3  <= field;
    end
    generate
        if (HEAD_W > 0) begin : g_head
            localparam HEADER = OFFSET - HEAD_W / 8;  // what lies between its two parts
            reg [HEAD_W-1:0] head2, head3;
            for (i = 0; i < HEAD_W / 8; i = i + 1) begin : g_byte
                always @(posedge clk) head2[8*i +: 8] <= frame[8*(i < 44 ? i : HEADER + i) +: 8];
            end
            always @(posedge clk) head3 <= head2;
            assign data3 = {head3, field3};
        end else begin : g_input
            assign data3 = field3;
        end
    endgenerate

    // --- beats wait for the verdict ---------------------------------------------------------------
    wire [DEPTH_W:0] verdict_level, beat_level;
    assign beat_valid = verdict_level != {(DEPTH_W + 1) {1'b0}}
                     && beat_level != {(DEPTH_W + 1) {1'b0}};
    n3ic_fifo #(.WIDTH(417), .DEPTH_W(DEPTH_W)) packets (
        .clk(clk), .rst(rst), .push(s_axis_tvalid && !rst),
        .in_data({s_axis_tlast, s_axis_tuser, s_axis_tkeep, s_axis_tdata}),
        .pop(beat_valid), .out_data(beat), .level(beat_level)
    );
    // A verdict is used up by the last beat of its packet, so all beats see the same one.
    n3ic_fifo #(.WIDTH(2 + GRAPH_W + QUEUE_W + DATA_W), .DEPTH_W(DEPTH_W)) verdicts (
        .clk(clk), .rst(rst), .push(judge3), .in_data({asks3, denied3, graph3, tenant3, data3}),
        .pop(beat_valid && beat[416]), .out_data({asks, denied, graph, tenant, data}), .level(verdict_level)
    );
endmodule
