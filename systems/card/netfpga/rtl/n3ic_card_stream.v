// SPDX-License-Identifier: Apache-2.0
// A user's own task behind a watchdog. The task reads a packet's input as an AXI4-Stream packet of
// ceil(DATA_W / BITS) beats, low bits first. It answers each with a packet in the same order, which
// is the next task's input. For the last task, the low 16 bits are the class and the next 32 bits
// the margin.
//
// A task that does not finish a packet within LIMIT clocks is cut off: it is held in reset, and the
// host decides all packets that it has or gets (class 65535), until `restart`.
module n3ic_card_stream #(
    parameter SIDE_W   = 16,
    parameter DATA_W   = 256,
    parameter RESULT_W = 60,
    parameter MARGIN_W = 12,
    parameter CREDIT_W = 3,
    parameter BITS     = 256,
    parameter LIMIT    = 4096,
    parameter FAIL     = 16'd0  // bits of `side` that are set where the task failed
) (
    input  wire                clk,
    input  wire                rst,
    input  wire                restart,
    output reg                 cut,
    input  wire                in_valid,
    output wire                in_ready,
    input  wire [SIDE_W-1:0]   in_side,
    input  wire [DATA_W-1:0]   in_data,
    output reg                 out_valid,
    input  wire                out_ready,
    output reg  [SIDE_W-1:0]   out_side,
    output reg  [RESULT_W-1:0] out_result,
    output reg  [DATA_W-1:0]   out_data,
    // The user's task
    output wire                user_rst,
    output wire [BITS-1:0]     m_axis_tdata,
    output wire                m_axis_tvalid,
    input  wire                m_axis_tready,
    output wire                m_axis_tlast,
    input  wire [BITS-1:0]     s_axis_tdata,
    input  wire                s_axis_tvalid,
    output wire                s_axis_tready,
    input  wire                s_axis_tlast
);
    localparam BEATS  = (DATA_W + BITS - 1) / BITS;
    localparam BEAT_W = (BEATS > 1) ? $clog2(BEATS) : 1;
    localparam LAST   = BEATS - 1;
    localparam TIME_W = $clog2(LIMIT + 1);

    // --- packets under way ------------------------------------------------------------------------
    wire [CREDIT_W:0]  level;
    wire [SIDE_W-1:0]  oldest;
    wire               waits = level != {(CREDIT_W + 1) {1'b0}};
    reg                begun;  // the packet at the input counts as under way
    reg  [BEAT_W-1:0]  out_beat, in_beat;
    wire               sent = m_axis_tvalid && m_axis_tready;
    wire               last_sent = out_beat == LAST[BEAT_W-1:0];
    wire               room = !out_valid || out_ready;
    wire               gets = s_axis_tvalid && s_axis_tready;
    wire               ends = gets && s_axis_tlast;
    wire               gives_up = cut && waits && room;
    assign in_ready = begun && (cut || (sent && last_sent));
    n3ic_fifo #(.WIDTH(SIDE_W), .DEPTH_W(CREDIT_W)) sides (
        .clk(clk), .rst(rst), .push(in_valid && !begun), .in_data(in_side),
        .pop(ends || gives_up), .out_data(oldest), .level(level)
    );

    // --- beats to the task ------------------------------------------------------------------------
    wire [BITS*BEATS-1:0] padded;
    generate
        if (BITS * BEATS > DATA_W) begin : g_pad
            assign padded = {{(BITS * BEATS - DATA_W) {1'b0}}, in_data};
        end else begin : g_exact
            assign padded = in_data;
        end
    endgenerate
    assign user_rst      = rst || cut;
    assign m_axis_tvalid = begun && !cut;
    assign m_axis_tdata  = padded[BITS*out_beat +: BITS];
    assign m_axis_tlast  = last_sent;
    assign s_axis_tready = !cut && room && waits;

    // --- and from it ------------------------------------------------------------------------------
    reg  [BITS*BEATS-1:0] gathered;
    reg  [BITS*BEATS-1:0] whole;
    integer b;
    always @* begin
        whole = gathered;
        for (b = 0; b < BEATS; b = b + 1)
            if (in_beat == b[BEAT_W-1:0]) whole[BITS*b +: BITS] = s_axis_tdata;
    end
    wire [RESULT_W+47:0] as_result = {{RESULT_W {1'b0}}, verdict};
    wire [47:0]          verdict;
    generate
        if (BITS * BEATS >= 48) begin : g_verdict
            assign verdict = whole[47:0];
        end else begin : g_short
            assign verdict = {{(48 - BITS * BEATS) {1'b0}}, whole};
        end
    endgenerate
    reg [TIME_W-1:0] clocks;
    always @(posedge clk) begin
        if (sent) out_beat <= last_sent ? {BEAT_W {1'b0}} : out_beat + 1'b1;
        begun <= in_valid && !in_ready;
        if (gets) begin
            in_beat  <= ends ? {BEAT_W {1'b0}}
                      : (in_beat == LAST[BEAT_W-1:0]) ? in_beat : in_beat + 1'b1;
            gathered <= ends ? {BITS * BEATS {1'b0}} : whole;
        end
        if (room) begin
            out_valid <= ends || gives_up;
            out_side  <= gives_up ? oldest | FAIL : oldest;
            out_data  <= whole[DATA_W-1:0];
            out_result <= gives_up ? {{(RESULT_W - 16 - MARGIN_W) {1'b0}}, 16'hffff, {MARGIN_W {1'b0}}}
                : {{(RESULT_W - 16 - MARGIN_W) {1'b0}}, as_result[15:0], as_result[16 +: MARGIN_W]};
        end
        // The watchdog pauses while the answer has nowhere to go.
        if (ends || !waits) clocks <= {TIME_W {1'b0}};
        else if (!cut && room) clocks <= clocks + 1'b1;
        if (clocks == LIMIT[TIME_W-1:0]) cut <= 1'b1;
        if (cut) begin
            out_beat <= {BEAT_W {1'b0}};
            in_beat  <= {BEAT_W {1'b0}};
            clocks   <= {TIME_W {1'b0}};
            gathered <= {BITS * BEATS {1'b0}};
            // Restarted only when empty, or the restarted task would answer packets that it never
            // got.
            if (restart && !waits && !in_valid) cut <= 1'b0;
        end
        if (rst) begin
            cut       <= 1'b0;
            begun     <= 1'b0;
            out_beat  <= {BEAT_W {1'b0}};
            in_beat   <= {BEAT_W {1'b0}};
            clocks    <= {TIME_W {1'b0}};
            gathered  <= {BITS * BEATS {1'b0}};
            out_valid <= 1'b0;
        end
    end
endmodule
