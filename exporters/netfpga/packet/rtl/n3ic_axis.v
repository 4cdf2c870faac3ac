// SPDX-License-Identifier: Apache-2.0
// Takes the input of an inference from each matching packet and writes the result into it; all
// other packets pass unchanged. The ports are AXI4-Streams as in the NetFPGA-SUME reference NIC (256
// bits) or in shells of 100 Gb/s (512), byte 0 in the low bits.
//
// Packets wait in a FIFO while their inference runs, and keep their order. A beat comes and a beat
// leaves each clock, so requests of one beat are an inference a clock if the core takes one.
//
// A packet matches by its EtherType, or by its UDP destination port (IPv4 without options, no
// fragment, no VLAN tag). It must hold all bytes that are read and written.
//
// The result is ten bytes, big-endian: model (4), class (2), margin (4).
module n3ic_axis #(
    parameter        DATA_W    = 256,       // bits of a beat
    parameter        IN_W      = 256,       // bits of an input
    parameter        OFFSET    = 26,        // its first byte in the frame
    parameter        NEED      = 58,        // minimum bytes of a matching frame
    parameter        UDP       = 0,         // 0: match the EtherType, 1: the UDP port
    parameter [15:0] VALUE     = 16'h2323,  // EtherType or port
    parameter        SIDE      = 0,         // 1: inputs come from the side channel, not the frame
    parameter        CLASS_W   = 1,
    parameter        MARGIN_W  = 6,
    parameter        TO_PACKET = 1,         // write the result into the frame
    parameter        RESULT_AT = 16,        // first byte of the result in the frame
    parameter        TO_USER   = 0,         // write it to tuser: [47:32] class, [79:48] margin, [80] 1
    parameter        BANKS     = 0,         // 1: an answer carries its model's id, 0: it is MODEL
    parameter [31:0] MODEL     = 32'd0,
    parameter        PACKETS_W = 9,         // log2 of the maximum number of waiting beats
    parameter        ASKS_W    = 4,         // log2 of the maximum number of waiting inferences
    parameter        RESULTS_W = 6          // log2 of the maximum number of inferences in flight
) (
    input  wire                clk,
    input  wire                rst,
    input  wire [DATA_W-1:0]   s_axis_tdata,
    input  wire [DATA_W/8-1:0] s_axis_tkeep,
    input  wire [127:0]        s_axis_tuser,
    input  wire                s_axis_tvalid,
    output wire                s_axis_tready,
    input  wire                s_axis_tlast,
    output reg  [DATA_W-1:0]   m_axis_tdata,
    output reg  [DATA_W/8-1:0] m_axis_tkeep,
    output reg  [127:0]        m_axis_tuser,
    output reg                 m_axis_tvalid,
    input  wire                m_axis_tready,
    output reg                 m_axis_tlast,
    // Side channel: one input per matching packet, in their order
    input  wire [IN_W-1:0]     s_side_tdata,
    input  wire                s_side_tvalid,
    output wire                s_side_tready,
    // To and from the core, which answers in order
    output wire                ask_valid,
    input  wire                ask_ready,
    output wire [IN_W-1:0]     ask_data,
    input  wire                answer_valid,
    input  wire [CLASS_W-1:0]  answer_class,
    input  wire [MARGIN_W-1:0] answer_margin,
    input  wire [31:0]         answer_model
);
    localparam BEAT      = DATA_W / 8;
    localparam LAST_BEAT = (NEED - 1) / BEAT;  // the beat in which a packet is known to match
    localparam FRAME     = BEAT * (LAST_BEAT + 1);
    localparam BYTES     = (IN_W + 7) / 8;
    localparam ASK_W     = (SIDE != 0) ? 1 : IN_W;
    localparam DESC_W    = PACKETS_W - 1;

    // --- packets wait -------------------------------------------------------------------------
    wire              packets_ready, beat_valid, beat_ready, room;
    wire [DATA_W-1:0] beat_data;
    wire [BEAT-1:0]   beat_keep;
    wire [127:0]      beat_user;
    wire              beat_last;
    assign s_axis_tready = packets_ready && room && !rst;  // what came in a reset would be lost
    wire   take = s_axis_tvalid && s_axis_tready;
    n3ic_packet_fifo #(.WIDTH(DATA_W + BEAT + 129), .DEPTH_W(PACKETS_W)) packets (
        .clk(clk), .rst(rst), .in_ready(packets_ready), .in_valid(s_axis_tvalid && room),
        .in_data({s_axis_tlast, s_axis_tuser, s_axis_tkeep, s_axis_tdata}),
        .out_valid(beat_valid), .out_ready(beat_ready),
        .out_data({beat_last, beat_user, beat_keep, beat_data})
    );

    // --- packets are matched ------------------------------------------------------------------
    reg  [7:0]         in_beat;  // stops at LAST_BEAT + 1
    /* verilator lint_off UNUSEDSIGNAL */
    wire [8*FRAME-1:0] frame;    // byte b in frame[8*b +: 8]
    /* verilator lint_on UNUSEDSIGNAL */
    generate
        if (LAST_BEAT > 0) begin : g_head
            reg [DATA_W*LAST_BEAT-1:0] head;
            integer b;
            always @(posedge clk)
                for (b = 0; b < LAST_BEAT; b = b + 1)
                    if (take && {24'd0, in_beat} == b) head[DATA_W*b +: DATA_W] <= s_axis_tdata;
            assign frame = {s_axis_tdata, head};
        end else begin : g_no_head
            assign frame = s_axis_tdata;
        end
    endgenerate
    wire match;
    generate
        if (UDP != 0) begin : g_udp
            assign match = {frame[8*12 +: 8], frame[8*13 +: 8]} == 16'h0800
                        && frame[8*14 +: 8] == 8'h45
                        && {frame[8*20 +: 6], frame[8*21 +: 8]} == 14'd0
                        && frame[8*20+7] == 1'b0
                        && frame[8*23 +: 8] == 8'd17
                        && {frame[8*36 +: 8], frame[8*37 +: 8]} == VALUE;
        end else begin : g_ethertype
            assign match = {frame[8*12 +: 8], frame[8*13 +: 8]} == VALUE;
        end
    endgenerate

    wire at_judge  = {24'd0, in_beat} == LAST_BEAT;
    wire too_short = {24'd0, in_beat} <= LAST_BEAT && !at_judge;
    wire asks_here = at_judge && s_axis_tkeep[(NEED-1)%BEAT] && match;
    reg              desc_push, desc_in, ask_push;
    reg  [ASK_W-1:0] ask_in;
    wire [ASK_W-1:0] input_bits;
    genvar g;
    generate
        if (SIDE != 0) begin : g_side
            assign input_bits = 1'b0;
        end else begin : g_field
            // The field is one big-endian number: bit 0 is in its last byte.
            for (g = 0; g < IN_W; g = g + 1) begin : g_bit
                assign input_bits[g] = frame[8*(OFFSET+BYTES-1-g/8) + g%8];
            end
        end
    endgenerate
    always @(posedge clk) begin
        if (take) begin
            if (s_axis_tlast) in_beat <= 8'd0;
            else if (at_judge || too_short) in_beat <= in_beat + 8'd1;
        end
        desc_push <= take && (at_judge || (too_short && s_axis_tlast)) && !rst;
        desc_in   <= asks_here;
        ask_push  <= take && asks_here && !rst;
        ask_in    <= input_bits;
        if (rst) in_beat <= 8'd0;
    end

    // --- inferences wait and run ------------------------------------------------------------
    wire [DESC_W:0]    desc_level;
    wire [ASKS_W:0]    ask_level;
    wire [RESULTS_W:0] result_level;
    wire               desc_match, desc_pop, result_pop;
    reg  [RESULTS_W:0] running;  // inferences whose packet has not left
    assign room = !desc_level[DESC_W] && desc_level[DESC_W-1:2] != {(DESC_W - 2) {1'b1}}
               && !ask_level[ASKS_W] && ask_level[ASKS_W-1:2] != {(ASKS_W - 2) {1'b1}};
    n3ic_fifo #(.WIDTH(1), .DEPTH_W(DESC_W)) judged (
        .clk(clk), .rst(rst), .push(desc_push), .in_data(desc_in), .pop(desc_pop),
        .out_data(desc_match), .level(desc_level)
    );
    /* verilator lint_off UNUSEDSIGNAL */
    wire [ASK_W-1:0] ask_head;
    /* verilator lint_on UNUSEDSIGNAL */
    wire ask_taken = ask_valid && ask_ready;
    wire may_ask   = ask_level != {(ASKS_W + 1) {1'b0}} && !running[RESULTS_W];
    n3ic_fifo #(.WIDTH(ASK_W), .DEPTH_W(ASKS_W)) asks (
        .clk(clk), .rst(rst), .push(ask_push), .in_data(ask_in), .pop(ask_taken),
        .out_data(ask_head), .level(ask_level)
    );
    generate
        if (SIDE != 0) begin : g_side_ask
            assign ask_valid     = may_ask && s_side_tvalid;
            assign s_side_tready = may_ask && ask_ready;
            assign ask_data      = s_side_tdata;
        end else begin : g_field_ask
            /* verilator lint_off UNUSEDSIGNAL */
            wire unused = s_side_tvalid ^ (^s_side_tdata);
            /* verilator lint_on UNUSEDSIGNAL */
            assign ask_valid     = may_ask;
            assign s_side_tready = 1'b0;
            assign ask_data      = ask_head;
        end
    endgenerate
    wire [CLASS_W-1:0]  result_class;
    wire [MARGIN_W-1:0] result_margin;
    wire [31:0]         result_model;
    n3ic_fifo #(.WIDTH(CLASS_W + MARGIN_W), .DEPTH_W(RESULTS_W)) results (
        .clk(clk), .rst(rst), .push(answer_valid), .in_data({answer_class, answer_margin}),
        .pop(result_pop), .out_data({result_class, result_margin}), .level(result_level)
    );
    generate
        if (BANKS != 0) begin : g_models
            /* verilator lint_off UNUSEDSIGNAL */
            wire [RESULTS_W:0] model_level;  // as that of the results
            /* verilator lint_on UNUSEDSIGNAL */
            n3ic_fifo #(.WIDTH(32), .DEPTH_W(RESULTS_W)) models (
                .clk(clk), .rst(rst), .push(answer_valid), .in_data(answer_model),
                .pop(result_pop), .out_data(result_model), .level(model_level)
            );
        end else begin : g_model
            /* verilator lint_off UNUSEDSIGNAL */
            wire [31:0] unused = answer_model;
            /* verilator lint_on UNUSEDSIGNAL */
            assign result_model = MODEL;
        end
    endgenerate
    always @(posedge clk) begin
        if (ask_taken && !result_pop) running <= running + 1'b1;
        else if (!ask_taken && result_pop) running <= running - 1'b1;
        if (rst) running <= {(RESULTS_W + 1) {1'b0}};
    end

    // --- packets leave ----------------------------------------------------------------------
    wire go   = beat_valid && desc_level != {(DESC_W + 1) {1'b0}}
             && (!desc_match || result_level != {(RESULTS_W + 1) {1'b0}});
    wire send = go && (!m_axis_tvalid || m_axis_tready);
    assign beat_ready = send;
    assign desc_pop   = send && beat_last;
    assign result_pop = desc_pop && desc_match;
    wire [79:0] answer = {
        result_model, {(16 - CLASS_W) {1'b0}}, result_class, {(32 - MARGIN_W) {1'b0}}, result_margin
    };
    reg [7:0]        out_beat;  // stops at 255
    reg [DATA_W-1:0] data;
    reg [127:0]      user;
    integer k;
    always @* begin
        k    = 0;
        data = beat_data;
        user = beat_user;
        if (desc_match && TO_PACKET != 0) begin
            for (k = 0; k < 10; k = k + 1)
                if ({24'd0, out_beat} == (RESULT_AT + k) / BEAT)
                    data[8*((RESULT_AT+k)%BEAT) +: 8] = answer[8*(9-k) +: 8];
            // The result changes the payload, so the UDP checksum becomes 0: not computed.
            if (UDP != 0 && {24'd0, out_beat} == 40 / BEAT) data[8*(40%BEAT) +: 16] = 16'd0;
        end
        if (desc_match && TO_USER != 0) user[80:32] = {1'b1, answer[31:0], answer[47:32]};
    end
    always @(posedge clk) begin
        if (send) begin
            m_axis_tdata <= data;
            m_axis_tkeep <= beat_keep;
            m_axis_tuser <= user;
            m_axis_tlast <= beat_last;
            out_beat     <= beat_last ? 8'd0 : (out_beat == 8'd255) ? out_beat : out_beat + 8'd1;
        end
        m_axis_tvalid <= (send || (m_axis_tvalid && !m_axis_tready)) && !rst;
        if (rst) out_beat <= 8'd0;
    end
endmodule
