// SPDX-License-Identifier: Apache-2.0
// The front end between a MAC's AXI4-Stream of W bytes per beat and the executors. It answers ARP
// and ICMP echo itself. Inference messages come and go over UDP, and over TCP if TCP is 1.
//
// In each clock, executor 0 gets the first row, executor 1 the second, and so on. They answer in
// order, and all have the same latency. A result has `RESULT` bytes, the first one highest.
module n3ic_front #(
    parameter W        = 64,
    parameter N        = 1,    // executors
    parameter ROW      = 32,   // bytes of a row
    parameter RESULT   = 16,
    parameter MAX_ROWS = 90,
    parameter [31:0] MODEL = 32'd0,
    parameter ANY_MODEL = 0,
    parameter MTU      = 1500,
    parameter BYPASS   = 1,
    parameter BEATS_W  = 6,    // 2^BEATS_W beats hold the longest IPv4 packet
    parameter PLANS_W  = 6,
    parameter TCP      = 0,
    parameter SESSIONS = 4,
    parameter SESSION_W = 2,
    parameter MSS      = 1460,
    parameter POOL_W   = 6,    // see n3ic_fe_tcp
    parameter BUFFER_W = 5,
    parameter SEG_RECORDS = 5,
    parameter IDLE     = 8
) (
    input  wire                  clk,
    input  wire                  rst,
    input  wire [47:0]           cfg_mac,
    input  wire [31:0]           cfg_ip,
    input  wire [15:0]           cfg_port,
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire [31:0]           cfg_resend,  // read by TCP only, and the key
    input  wire [63:0]           cfg_key,
    /* verilator lint_on UNUSEDSIGNAL */

    input  wire [8*W-1:0]        s_axis_tdata,
    input  wire [W-1:0]          s_axis_tkeep,
    input  wire                  s_axis_tuser,
    input  wire                  s_axis_tvalid,
    output wire                  s_axis_tready,
    input  wire                  s_axis_tlast,
    output wire [8*W-1:0]        m_axis_tdata,
    output wire [W-1:0]          m_axis_tkeep,
    output wire                  m_axis_tvalid,
    input  wire                  m_axis_tready,
    output wire                  m_axis_tlast,

    output wire                  ask_valid,
    input  wire                  ask_ready,
    output wire [N-1:0]          ask_rows,
    output wire [8*ROW*N-1:0]    ask_data,
    input  wire [N-1:0]          answer_valid,
    input  wire [8*RESULT*N-1:0] answer_data,
    input  wire [31:0]           answer_model,

    output wire [32*15-1:0]      counters
);
    localparam CW      = $clog2(W) + 1;
    localparam META_W  = 242;
    localparam TAG_W   = 99;  // kind, MAC, IP, port
    localparam OUT_W   = TAG_W + 137;
    localparam PLAN_W  = TAG_W + 58;
    localparam REST    = ANY_MODEL != 0 ? ROW + 16 : ROW > 16 ? ROW : 16;
    localparam REMAINS_W = 8*REST + 18 + $clog2(2*W + REST + 1);
    localparam SOURCES = TCP != 0 ? 3 : 2;

    // --- frames in -----------------------------------------------------------------------------
    wire              beat_valid, beat_last, beat_pop, meta_valid, meta_pop, sound_valid, sound;
    wire [8*W-1:0]    beat_data;
    wire [META_W-1:0] meta;
    wire [5:0]        count;
    n3ic_fe_parse #(
        .W(W), .META_W(META_W), .MTU(MTU), 
        .TCP(TCP), .BEATS_W(BYPASS != 0 ? 5 : BEATS_W + 1)
    ) parse (
        .clk(clk), .rst(rst), .cfg_mac(cfg_mac), .cfg_ip(cfg_ip), .cfg_port(cfg_port),
        .s_axis_tdata(s_axis_tdata), .s_axis_tkeep(s_axis_tkeep), .s_axis_tuser(s_axis_tuser),
        .s_axis_tvalid(s_axis_tvalid), .s_axis_tready(s_axis_tready), .s_axis_tlast(s_axis_tlast),
        .beat_valid(beat_valid), .beat_data(beat_data), .beat_last(beat_last), .beat_pop(beat_pop),
        .meta_valid(meta_valid), .meta(meta), .sound_valid(sound_valid), .sound(sound),
        .meta_pop(meta_pop), .count(count)
    );
    wire              in_valid, in_ready, in_first, in_last, in_sound;
    wire [CW-1:0]     in_count;
    wire [8*W-1:0]    in_data;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [META_W-1:0] in_meta;
    /* verilator lint_on UNUSEDSIGNAL */
    n3ic_fe_payload #(.W(W), .CW(CW), .META_W(META_W), .BYPASS(BYPASS)) payload (
        .clk(clk), .rst(rst), .beat_valid(beat_valid), .beat_data(beat_data), .beat_last(beat_last),
        .beat_pop(beat_pop), .meta_valid(meta_valid), .meta(meta), .sound_valid(sound_valid),
        .sound(sound), .meta_pop(meta_pop), .out_valid(in_valid), .out_ready(in_ready),
        .out_first(in_first), .out_last(in_last), .out_sound(in_sound), .out_count(in_count),
        .out_data(in_data), .out_meta(in_meta)
    );
    wire [2:0]       in_kind   = in_meta[META_W-1 -: 3];
    wire [15:0]      in_length = in_meta[META_W-11 -: 16];
    wire [TAG_W-1:0] in_tag    = {in_kind, in_meta[META_W-27 -: 96]};
    wire to_rows = in_kind == 3'd3;
    wire to_tcp  = in_kind == 3'd4;
    wire echo_ready, rows_ready, tcp_ready;
    assign in_ready = to_rows ? rows_ready : to_tcp ? tcp_ready : echo_ready;

    // --- ARP and echoes ------------------------------------------------------------------------
    wire [SOURCES-1:0]       source_valid, source_pop, reply_valid, reply_pop;
    wire [OUT_W*SOURCES-1:0] source;
    wire [8*W*SOURCES-1:0]   reply;
    wire [TAG_W+31:0]        echo_meta, row_meta;
    n3ic_fe_replies #(.W(W), .CW(CW), .TAG_W(TAG_W), .BEATS_W(BEATS_W)) echoes (
        .clk(clk), .rst(rst), .in_valid(in_valid && !to_rows && !to_tcp), .in_ready(echo_ready), .in_last(in_last),
        .in_keep(in_sound), .in_count(in_count), .in_data(in_data), .in_tag(in_tag),
        .meta_valid(source_valid[0]), .meta(echo_meta), .meta_pop(source_pop[0]),
        .beat_valid(reply_valid[0]), .beat(reply[8*W-1:0]), .beat_pop(reply_pop[0])
    );
    assign source[0 +: OUT_W] = {echo_meta, 105'd0};

    // --- requests and results ----------------------------------------------------------------
    wire              plan_valid, plan_ready, took, faulty;
    wire [PLAN_W-1:0] plan;
    /* verilator lint_off UNUSEDSIGNAL */
    wire                 saved;
    wire [REMAINS_W-1:0] remains;
    wire                 out_stream;
    /* verilator lint_on UNUSEDSIGNAL */
    wire                 seg_valid;
    wire [TAG_W-1:0]     seg_tag;
    wire [REMAINS_W-1:0] seg_remains;
    n3ic_fe_rows #(
        .W(W), .CW(CW), .N(N), .ROW(ROW), .REST(REST), .MAX_ROWS(MAX_ROWS), .MODEL(MODEL),
        .ANY_MODEL(ANY_MODEL), .TAG_W(TAG_W), .REMAINS_W(REMAINS_W), .PLAN_W(PLAN_W)
    ) requests (
        .clk(clk), .rst(rst), .in_valid(in_valid && to_rows || seg_valid), .in_ready(rows_ready), .in_first(in_first),
        .in_last(in_last), .in_sound(in_sound), .in_count(in_count), .in_data(in_data),
        .in_stream(to_tcp), .in_length(in_length), .in_tag(to_tcp ? seg_tag : in_tag),
        .in_remains(seg_remains),
        .saved(saved), .remains(remains), .ask_valid(ask_valid), .ask_ready(ask_ready),
        .ask_rows(ask_rows), .ask_data(ask_data), .plan_valid(plan_valid), .plan_ready(plan_ready),
        .plan(plan), .took(took), .faulty(faulty)
    );
    wire              out_valid, udp_ready, tcp_takes, out_last, out_keep;
    wire [CW-1:0]     out_count;
    wire [8*W-1:0]    out_data;
    wire [TAG_W-1:0]  out_tag;
    n3ic_fe_results #(
        .W(W), .CW(CW), .N(N), .ROW(ROW), .RESULT(RESULT), .MAX_ROWS(MAX_ROWS), .MODEL(MODEL),
        .TAG_W(TAG_W), .PLAN_W(PLAN_W), .PLANS_W(PLANS_W)
    ) answers (
        .clk(clk), .rst(rst), .plan_valid(plan_valid), .plan_ready(plan_ready), .plan(plan),
        .answer_valid(answer_valid), .answer_data(answer_data), .answer_model(answer_model),
        .out_valid(out_valid), .out_ready(out_stream ? tcp_takes : udp_ready), .out_last(out_last),
        .out_keep(out_keep), .out_stream(out_stream), .out_count(out_count), .out_data(out_data),
        .out_tag(out_tag)
    );
    n3ic_fe_replies #(.W(W), .CW(CW), .TAG_W(TAG_W), .BEATS_W(BEATS_W + 1)) datagrams (
        .clk(clk), .rst(rst), .in_valid(out_valid && !out_stream), .in_ready(udp_ready), .in_last(out_last),
        .in_keep(out_keep), .in_count(out_count), .in_data(out_data), .in_tag(out_tag),
        .meta_valid(source_valid[1]), .meta(row_meta), .meta_pop(source_pop[1]),
        .beat_valid(reply_valid[1]), .beat(reply[8*W +: 8*W]), .beat_pop(reply_pop[1])
    );
    assign source[OUT_W +: OUT_W] = {row_meta, 105'd0};

    // --- TCP -----------------------------------------------------------------------------------
    wire [6:0] tcp_count;
    generate
        if (TCP != 0) begin : g_tcp
            n3ic_fe_tcp #(
                .W(W), .CW(CW), .META_W(META_W), .OUT_W(OUT_W), .TAG_W(TAG_W), .REMAINS_W(REMAINS_W),
                .SESSIONS(SESSIONS), .SW(SESSION_W), .MSS(MSS), .POOL_W(POOL_W), .BUFFER_W(BUFFER_W),
                .SEG_RECORDS(SEG_RECORDS), .IDLE(IDLE)
            ) tcp (
                .clk(clk), .rst(rst), .cfg_port(cfg_port), .cfg_resend(cfg_resend), .cfg_key(cfg_key),
                .in_valid(in_valid && to_tcp), .in_ready(tcp_ready), .in_first(in_first), .in_last(in_last),
                .in_sound(in_sound), .in_meta(in_meta), .seg_valid(seg_valid), .seg_ready(rows_ready),
                .seg_tag(seg_tag), .seg_remains(seg_remains), .saved(saved), .remains(remains),
                .out_valid(out_valid && out_stream), .out_ready(tcp_takes), .out_last(out_last),
                .out_keep(out_keep), .out_count(out_count), .out_data(out_data),
                .out_tag(out_tag[SESSION_W+1:0]), .meta_valid(source_valid[2]),
                .meta(source[2*OUT_W +: OUT_W]), .meta_pop(source_pop[2]), .beat_valid(reply_valid[2]),
                .beat(reply[16*W +: 8*W]), .beat_pop(reply_pop[2]), .count(tcp_count)
            );
        end else begin : g_no_tcp
            assign tcp_ready   = 1'b1;
            assign seg_valid   = 1'b0;
            assign seg_tag     = {TAG_W {1'b0}};
            assign seg_remains = {REMAINS_W {1'b0}};
            assign tcp_takes   = 1'b1;
            assign tcp_count   = 7'd0;
        end
    endgenerate

    // --- frames out ----------------------------------------------------------------------------
    n3ic_fe_frames #(.W(W), .SOURCES(SOURCES), .META_W(OUT_W), .MSS(MSS)) frames (
        .clk(clk), .rst(rst), .cfg_mac(cfg_mac), .cfg_ip(cfg_ip), .cfg_port(cfg_port),
        .meta_valid(source_valid), .metas(source), .meta_pop(source_pop), .beat_valid(reply_valid),
        .beats(reply), .beat_pop(reply_pop), .m_axis_tdata(m_axis_tdata), .m_axis_tkeep(m_axis_tkeep),
        .m_axis_tvalid(m_axis_tvalid), .m_axis_tready(m_axis_tready), .m_axis_tlast(m_axis_tlast)
    );

    // --- counters --------------------------------------------------------------------------------
    /* verilator lint_off UNUSEDSIGNAL */
    wire [14:0] events = {tcp_count, faulty, took, count};  // the last three of TCP only
    /* verilator lint_on UNUSEDSIGNAL */
    genvar g;
    generate
        for (g = 0; g < 15; g = g + 1) begin : g_counter
            if (TCP == 0 && g >= 12) begin : g_none
                assign counters[32*g +: 32] = 32'd0;
            end else begin : g_some
                reg [31:0] counter;
                always @(posedge clk) counter <= rst ? 32'd0 : counter + {31'd0, events[g]};
                assign counters[32*g +: 32] = counter;
            end
        end
    endgenerate
endmodule
