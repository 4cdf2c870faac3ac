// SPDX-License-Identifier: Apache-2.0
// Turns results into messages. A plan gives the number of results of a message, its beginning and
// its end. Results wait for their plan's turn, so executors need not wait.
/* verilator lint_off WIDTH */  // loop variables have 32 bits
module n3ic_fe_results #(
    parameter W        = 64,
    parameter CW       = 7,
    parameter N        = 1,
    parameter ROW      = 32,
    parameter RESULT   = 16,  // bytes of a result
    parameter MAX_ROWS = 90,
    parameter [31:0] MODEL = 32'd0,
    parameter TAG_W    = 112,
    parameter PLAN_W   = TAG_W + 58,
    parameter PLANS_W  = 6    // 2^PLANS_W plans wait: more than an executor's latency in clocks
) (
    input  wire                  clk,
    input  wire                  rst,
    input  wire                  plan_valid,
    output wire                  plan_ready,
    input  wire [PLAN_W-1:0]     plan,
    input  wire [N-1:0]          answer_valid,
    input  wire [8*RESULT*N-1:0] answer_data,  // of executor 0 lowest, its first byte highest
    input  wire [31:0]           answer_model,  // of executor 0

    output wire                  out_valid,
    input  wire                  out_ready,
    output wire                  out_last,
    output wire                  out_keep,    // valid with the last beat: send the message
    output wire                  out_stream,
    output wire [CW-1:0]         out_count,
    output wire [8*W-1:0]        out_data,
    output wire [TAG_W-1:0]      out_tag
);
    localparam ITEM = 16 + N * RESULT > 20 ? 16 + N * RESULT : 20;
    localparam CAP  = W + ITEM;
    localparam LW   = $clog2(CAP + 1);
    integer i, j;

    // --- queues -----------------------------------------------------------------------------
    wire [PLANS_W:0]     plans;
    wire                 next_valid;
    wire [PLAN_W-1:0]    next;
    wire                 take;
    assign plan_ready = plans < (1 << PLANS_W) - 1;
    n3ic_fe_fifo #(.WIDTH(PLAN_W), .DEPTH_W(PLANS_W)) plan_queue (
        .clk(clk), .rst(rst), .push(plan_valid && plan_ready), .in_data(plan),
        .out_valid(next_valid), .out_data(next), .pop(take), .level(plans)
    );
    wire                 close, keeps, stream, head;
    wire [2:0]           fault, k;
    wire [31:0]          id;
    wire [15:0]          rows;
    wire [TAG_W-1:0]     tag;
    assign {tag, close, keeps, stream, head, fault, id, rows, k} = next;
    wire [N-1:0]         ready;
    wire [8*RESULT*N-1:0] results;
    wire [31:0]          model;
    genvar g, b;
    generate
        for (g = 0; g < N; g = g + 1) begin : g_answers
            wire [8*RESULT-1:0] result;
            /* verilator lint_off UNUSEDSIGNAL */
            wire [PLANS_W:0] waiting;
            /* verilator lint_on UNUSEDSIGNAL */
            if (g == 0) begin : g_first
                n3ic_fe_fifo #(.WIDTH(8*RESULT + 32), .DEPTH_W(PLANS_W)) answers (
                    .clk(clk), .rst(rst), .push(answer_valid[0]),
                    .in_data({answer_model, answer_data[8*RESULT-1:0]}), .out_valid(ready[0]),
                    .out_data({model, result}), .pop(take && k != 3'd0), .level(waiting)
                );
            end else begin : g_others
                n3ic_fe_fifo #(.WIDTH(8*RESULT), .DEPTH_W(PLANS_W)) answers (
                    .clk(clk), .rst(rst), .push(answer_valid[g]), .in_data(answer_data[8*RESULT*g +: 8*RESULT]),
                    .out_valid(ready[g]), .out_data(result), .pop(take && k > g), .level(waiting)
                );
            end
            for (b = 0; b < RESULT; b = b + 1) begin : g_byte
                assign results[8*(RESULT*g + b) +: 8] = result[8*(RESULT - 1 - b) +: 8];
            end
        end
    endgenerate
    reg there;
    always @* begin
        there = next_valid;
        for (i = 0; i < N; i = i + 1) if (k > i && !ready[i]) there = 1'b0;
    end

    // --- an item of a message -----------------------------------------------------------------
    // A header names the model of its first result. One that leaves earlier, or an error, names
    // the export's.
    wire [31:0]  named = k != 3'd0 && fault == 3'd0 ? model : MODEL;
    wire [159:0] first = {
        16'h4e33, 8'd1, fault != 3'd0 ? 8'd2 : 8'd1, id, named, fault != 3'd0 ? 16'd0 : rows,
        fault != 3'd0 ? ROW[15:0] : RESULT[15:0], 13'd0, fault, MAX_ROWS[15:0]
    };
    reg  [8*ITEM-1:0] item;
    reg  [LW-1:0]     size;
    reg  [8*RESULT*N-1:0] wanted;
    always @* begin
        wanted = results;
        for (i = 0; i < N; i = i + 1) if (k <= i) wanted[8*RESULT*i +: 8*RESULT] = {8*RESULT {1'b0}};
        item = {8*ITEM {1'b0}};
        size = {LW {1'b0}};
        if (fault != 3'd0) begin
            for (i = 0; i < 20; i = i + 1) item[8*i +: 8] = first[8*(19 - i) +: 8];
            size = 20;
        end else begin
            for (j = 0; j <= N; j = j + 1) if (k == j) size = RESULT * j;
            if (head) begin
                for (i = 0; i < 16; i = i + 1) item[8*i +: 8] = first[8*(19 - i) +: 8];
                item[8*ITEM-1:128] = wanted;
                size = size + 16;
            end else item[8*RESULT*N-1:0] = wanted;
        end
    end

    // --- items to beats -------------------------------------------------------------------------
    reg  [8*CAP-1:0] bytes;
    reg  [LW-1:0]    level;
    reg              closing, closing_keeps, closing_stream;
    reg  [TAG_W-1:0] closing_tag;
    assign out_valid  = level >= W || closing;
    assign out_last   = closing && level <= W;
    assign out_count  = level >= W ? W : level;
    assign out_data   = bytes[8*W-1:0];
    assign out_keep   = closing_keeps;
    assign out_stream = closing_stream;
    assign out_tag    = closing_tag;
    wire   leave = out_valid && out_ready;
    assign take = there && (closing ? leave && out_last : level <= W);
    wire [LW-1:0]    base = !leave ? level : level >= W ? level - W : {LW {1'b0}};
    wire [8*CAP-1:0] rest_bytes = leave ? bytes >> (8*W) : bytes;
    always @(posedge clk) begin
        bytes <= take ? rest_bytes | ({{(8*CAP - 8*ITEM) {1'b0}}, item} << {base, 3'b000}) : rest_bytes;
        level <= take ? base + size : base;
        if (take) begin
            closing        <= close;
            closing_keeps  <= keeps;
            closing_stream <= stream;
            closing_tag    <= tag;
        end else if (leave && out_last) closing <= 1'b0;
        if (rst) begin
            bytes   <= {8*CAP {1'b0}};
            level   <= {LW {1'b0}};
            closing <= 1'b0;
        end
    end
endmodule
/* verilator lint_on WIDTH */
