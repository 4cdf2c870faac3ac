// SPDX-License-Identifier: Apache-2.0
// Splits requests into rows. A datagram holds one message; in a stream, messages follow each other.
// Up to N rows of a message go to N executors per clock. A plan for the results leaves with them, in
// the same order.
//
// A segment of a stream may end within a message. `remains` keeps the rest, which comes back with
// the next segment of its session.
/* verilator lint_off WIDTH */  // loop variables have 32 bits
module n3ic_fe_rows #(
    parameter W        = 64,
    parameter CW       = 7,
    parameter N        = 1,   // rows per clock
    parameter ROW      = 32,  // bytes of a row
    parameter REST     = 32,  // bytes that may wait: of a row or of a header's 16; of both if ANY_MODEL
    parameter MAX_ROWS = 90,
    parameter [31:0] MODEL = 32'd0,
    parameter ANY_MODEL = 0,  // 1: the executor's model may change; its results name it
    parameter TAG_W    = 112,
    parameter REMAINS_W = 8*REST + 18 + $clog2(2*W + REST + 1),
    parameter PLAN_W   = TAG_W + 58
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire                 in_valid,
    output wire                 in_ready,
    input  wire                 in_first,
    input  wire                 in_last,
    input  wire                 in_sound,
    input  wire [CW-1:0]        in_count,
    input  wire [8*W-1:0]       in_data,
    input  wire                 in_stream,
    input  wire [15:0]          in_length,
    input  wire [TAG_W-1:0]     in_tag,
    input  wire [REMAINS_W-1:0] in_remains,
    output wire                 saved,  // the remains of the segment that has ended
    output wire [REMAINS_W-1:0] remains,

    output wire                 ask_valid,
    input  wire                 ask_ready,
    output wire [N-1:0]         ask_rows,  // which of them
    output wire [8*ROW*N-1:0]   ask_data,  // row 0 lowest, its first byte highest

    output wire                 plan_valid,
    input  wire                 plan_ready,
    output wire [PLAN_W-1:0]    plan,
    output wire                 took,   // a request without fault
    output wire                 faulty  // one that is answered by an error
);
    localparam HEAD = 2'd0, ROWS = 2'd1, SKIP = 2'd2;
    localparam CAP  = 2*W + REST;
    localparam LW   = $clog2(CAP + 1);
    integer j;

    reg  [8*CAP-1:0] bytes;  // waiting bytes, the oldest lowest
    reg  [LW-1:0]    level;
    reg  [1:0]       state;
    reg  [15:0]      rows_left;
    reg              open, ended, sound, stream, quiet;
    reg  [15:0]      length;
    reg  [TAG_W-1:0] tag;
    reg  [2:0]       fault;
    reg  [31:0]      fault_id;

    // --- the header ---------------------------------------------------------------------------
    wire [15:0] magic    = {bytes[7:0], bytes[15:8]};
    wire [7:0]  version  = bytes[23:16];
    wire [7:0]  kind     = bytes[31:24];
    wire [31:0] id       = {bytes[39:32], bytes[47:40], bytes[55:48], bytes[63:56]};
    wire [31:0] model    = {bytes[71:64], bytes[79:72], bytes[87:80], bytes[95:88]};
    wire [15:0] rows     = {bytes[103:96], bytes[111:104]};
    wire [15:0] row_size = {bytes[119:112], bytes[127:120]};
    wire        head     = level >= 16;
    wire [31:0] expected = 16 + rows * ROW;
    wire [2:0]  wrong = !head ? 3'd1 : magic != 16'h4e33 ? 3'd2 : version != 8'd1 || kind != 8'd0 ? 3'd3
        : ANY_MODEL == 0 && model != 32'd0 && model != MODEL ? 3'd4 : row_size != ROW ? 3'd5
        : rows == 16'd0 || rows > MAX_ROWS ? 3'd6 : !stream && expected != {16'd0, length} ? 3'd7 : 3'd0;
    wire        reply = !stream && head && magic == 16'h4e33 && kind != 8'd0;  // never answered

    // --- the step of this clock -----------------------------------------------------------------
    reg  [3:0]  k;  // rows
    wire        at_head = state == HEAD && open && head;
    // The answer's header names the model of its first result, so it must not leave before that.
    wire        good    = at_head && wrong == 3'd0 && !reply && (ANY_MODEL == 0 || k != 4'd0);
    wire        bad     = state == HEAD && open && ((head && (wrong != 3'd0 || reply)) || (ended && !stream && !head));
    wire [15:0] due     = state == HEAD ? rows : rows_left;
    always @* begin
        k = 4'd0;
        for (j = 1; j <= N; j = j + 1)
            if (due >= j && level >= (state == HEAD ? 16 : 0) + j * ROW) k = j;
    end
    wire        all   = due == {12'd0, k};
    wire        item  = open && (good || (state == ROWS && k != 4'd0));
    // A datagram ends with its last row; a segment ends without a further whole row or header.
    wire        close = open && ended && ((item && all && !stream) || (!item && !bad));
    wire        plans = item || close;
    wire        fire  = plans && plan_ready && (!item || k == 4'd0 || ask_ready);
    wire        finish = fire && close;
    assign ask_valid  = item && k != 4'd0 && plan_ready;
    assign plan_valid = plans && (!item || k == 4'd0 || ask_ready);
    wire        failed = !item && fault != 3'd0;
    wire        keeps  = sound && !quiet && (stream || item || failed);
    assign plan = {tag, close, keeps, stream, item && state == HEAD, failed ? fault : 3'd0,
        failed ? fault_id : id, rows, k[2:0]};
    assign took   = fire && item && state == HEAD;
    assign faulty = finish && failed && keeps;
    genvar g;
    wire [8*CAP-1:0] from = state == HEAD ? bytes >> 128 : bytes;
    generate
        for (g = 0; g < N; g = g + 1) begin : g_row
            assign ask_rows[g] = k > g;
            genvar b;
            for (b = 0; b < ROW; b = b + 1) begin : g_byte
                assign ask_data[8*(ROW*g + ROW - 1 - b) +: 8] = from[8*(ROW*g + b) +: 8];
            end
        end
    endgenerate

    // --- the remains of a session ----------------------------------------------------------------
    assign saved   = finish && stream;
    assign remains = {state, rows_left, level, bytes[8*REST-1:0]};
    wire   load    = in_valid && in_stream && in_first && !open;

    // --- the bytes -----------------------------------------------------------------------------
    wire start = in_first && !in_stream && in_valid;
    assign in_ready = (open ? !ended || (finish && !stream && !(in_stream && in_first)) : !(in_stream && in_first) && !rst)
        && level <= W + REST;
    wire absorb = in_valid && in_ready;
    reg  [8*CAP-1:0] rest_bytes;
    reg  [LW-1:0]    base;
    always @* begin
        rest_bytes = bytes;
        base = level;
        for (j = 0; j <= N; j = j + 1)
            if (item && fire && k == j) begin
                rest_bytes = from >> (8 * ROW * j);
                base = level - (state == HEAD ? 16 : 0) - ROW * j;
            end
        if (state == SKIP || (finish && !stream)) begin
            rest_bytes = {8*CAP {1'b0}};
            base = {LW {1'b0}};
        end
    end
    wire skips = bad || (state == SKIP && !finish);  // incoming bytes are dropped
    always @(posedge clk) begin
        if (load) begin
            {state, rows_left} <= in_remains[REMAINS_W-1 -: 18];
            level  <= in_remains[8*REST +: LW];
            bytes  <= {{(8*CAP - 8*REST) {1'b0}}, in_remains[8*REST-1:0]};
            stream <= 1'b1;
            open   <= 1'b1;
            ended  <= 1'b0;
            tag    <= in_tag;
        end else begin
            if (absorb && !skips) begin
                bytes <= rest_bytes | ({{(8*CAP - 8*W) {1'b0}}, in_data} << {base, 3'b000});
                level <= base + in_count;
            end else begin
                bytes <= skips ? {8*CAP {1'b0}} : rest_bytes;
                level <= skips ? {LW {1'b0}} : base;
            end
            if (fire && item) begin
                rows_left <= due - {12'd0, k};
                state     <= all ? HEAD : ROWS;
            end
            if (bad) begin
                state    <= SKIP;
                fault    <= wrong;
                fault_id <= head && wrong != 3'd2 ? id : 32'd0;
                quiet    <= reply;
            end
            if (finish) begin
                open  <= 1'b0;
                fault <= 3'd0;
                if (!stream) begin
                    state <= HEAD;
                    quiet <= 1'b0;
                end
            end
            if (absorb) begin
                if (in_last) begin
                    ended <= 1'b1;
                    sound <= in_sound;
                end else if (finish) ended <= 1'b0;
                if (start) begin
                    open   <= 1'b1;
                    stream <= 1'b0;
                    length <= in_length;
                    tag    <= in_tag;
                    if (!in_last) ended <= 1'b0;
                end
            end else if (finish) ended <= 1'b0;
        end
        if (rst) begin
            open   <= 1'b0;
            ended  <= 1'b0;
            level  <= {LW {1'b0}};
            bytes  <= {8*CAP {1'b0}};
            state  <= HEAD;
            stream <= 1'b0;
            quiet  <= 1'b0;
            fault  <= 3'd0;
        end
    end
endmodule
/* verilator lint_on WIDTH */
