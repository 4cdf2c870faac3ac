// SPDX-License-Identifier: Apache-2.0
// Multiplies rows of integers by the card's columns of a matrix: an array of 16 times COLUMNS
// multipliers. A row of the memory of weights has 16 weights of each of COLUMNS columns, and the
// numbers of the input slices that they multiply; the last row of these columns is marked. A matrix
// with zeros needs only the rows in which a weight is not zero.
//
// A request computes all columns for each of some windows of the input, which are `ask_step` slices
// apart: an image whose columns are slices is convolved. Sums have 64 bits; who writes the weights
// makes sure that they fit. They leave as two words each, the upper one first.
module n3ic_cluster_gemm #(
    parameter COLUMNS  = 4,   // a power of two
    parameter WEIGHT_W = 8,   // bits of a weight
    parameter ROW_W    = 12,  // address bits of a row of weights
    parameter INPUT_W  = 8,   // address bits of an input slice
    parameter SPARSE   = 0,   // 1: each of the 16 inputs has its own slice; 0: one for all
    parameter MAXIMUM  = 0    // 1: the maximum of the inputs with weights other than 0, 0 for none
) (
    input  wire               clk,
    input  wire               rst,
    // Input words, as in n3ic_cluster_layer
    input  wire [15:0]        in_en,
    input  wire [15:0]        in_next,
    input  wire [INPUT_W-1:0] in_row,
    input  wire [INPUT_W-1:0] in_next_row,
    input  wire [511:0]       in_bits,
    // Requests: at least one row and one window
    input  wire               ask_valid,
    output wire               ask_ready,
    input  wire [ROW_W:0]     ask_rows,
    input  wire [15:0]        ask_columns,
    input  wire [INPUT_W-1:0] ask_input,   // first slice of the first window
    input  wire [15:0]        ask_windows,
    input  wire [INPUT_W-1:0] ask_step,
    // Results
    output wire               out_valid,
    input  wire               out_ready,
    output wire               out_ends,    // last word of the window
    output wire               out_last,    // last word of the request
    output wire [31:0]        out_word,
    // Weights, slices and marks
    input  wire               wr_weight,
    input  wire               wr_slice,
    input  wire [ROW_W-1:0]   wr_row,
    input  wire [7:0]         wr_word,     // 32 bits of the row, the lowest first
    input  wire [31:0]        wr_data
);
    localparam LANES   = 16;
    localparam WORDS   = LANES * WEIGHT_W / 32;      // of a column's weights in a row
    localparam SLICES  = (SPARSE != 0) ? 4 : 1;      // words of a row's slices; a mark is behind
    localparam INDEX_W = 8;
    localparam [7:0] MARK = SLICES[7:0];
    localparam SUM_W   = (WEIGHT_W > 28) ? 64 : 36 + WEIGHT_W;
    localparam TOTAL_W = 64;
    localparam STAGES  = 8;                          // from an address to its part of a sum
    localparam GROUP_W = (COLUMNS > 1) ? $clog2(COLUMNS) : 1;

    // --- addresses ------------------------------------------------------------------------
    reg                busy;
    reg [ROW_W-1:0]    row;
    reg [ROW_W:0]      rows, left;   // rows left of the window, this one included
    reg [15:0]         windows, columns;
    reg [INPUT_W-1:0]  window, step;
    wire               room;
    wire issue  = busy && room;
    wire ends   = left == {{ROW_W {1'b0}}, 1'b1};
    wire final_ = ends && windows == 16'd1;
    assign ask_ready = !busy;
    always @(posedge clk) begin
        if (ask_valid && ask_ready) begin
            busy    <= 1'b1;
            row     <= {ROW_W {1'b0}};
            rows    <= ask_rows;
            left    <= ask_rows;
            windows <= ask_windows;
            columns <= ask_columns;
            window  <= ask_input;
            step    <= ask_step;
        end else if (issue) begin
            row  <= row + 1'b1;
            left <= left - 1'b1;
            if (ends) begin
                row     <= {ROW_W {1'b0}};
                left    <= rows;
                window  <= window + step;
                windows <= windows - 16'd1;
                busy    <= !final_;
            end
        end
        if (rst) busy <= 1'b0;
    end

    // Bit i is of the row that was addressed i + 1 clocks before.
    reg [STAGES-1:0] valid, last, marked;
    reg [INPUT_W-1:0] window1, window2;
    wire mark;
    always @(posedge clk) begin
        valid   <= rst ? {STAGES {1'b0}} : {valid[STAGES-2:0], issue};
        last    <= {last[STAGES-2:0], final_};
        marked  <= {marked[STAGES-2:2], mark, 2'd0};
        window1 <= window;
        window2 <= window1;
    end

    // --- slices, weights and inputs -----------------------------------------------------------
    /* verilator lint_off UNUSEDSIGNAL */
    wire [32*SLICES-1:0]           slices;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [LANES*COLUMNS*WEIGHT_W-1:0] weights;
    wire [511:0]                   inputs;
    reg  [LANES*COLUMNS*WEIGHT_W-1:0] weights1, weights2;  // wait for the inputs
    n3ic_cluster_ram #(.WIDTH(1), .ADDR_W(ROW_W)) marks (
        .clk(clk), .wr_en(wr_slice && wr_word == MARK), .wr_addr(wr_row),
        .wr_data(wr_data[0]), .rd_addr(row), .rd_data(mark)
    );
    genvar g, c, l;
    generate
        for (g = 0; g < SLICES; g = g + 1) begin : g_slice
            n3ic_cluster_ram #(.WIDTH(32), .ADDR_W(ROW_W)) numbers (
                .clk(clk), .wr_en(wr_slice && wr_word == g), .wr_addr(wr_row),
                .wr_data(wr_data), .rd_addr(row), .rd_data(slices[32*g +: 32])
            );
        end
        for (g = 0; g < WORDS * COLUMNS; g = g + 1) begin : g_word
            n3ic_cluster_ram #(.WIDTH(32), .ADDR_W(ROW_W)) factors (
                .clk(clk), .wr_en(wr_weight && wr_word == g), .wr_addr(wr_row),
                .wr_data(wr_data), .rd_addr(row), .rd_data(weights[32*g +: 32])
            );
        end
        for (g = 0; g < LANES; g = g + 1) begin : g_lane
            /* verilator lint_off UNUSEDSIGNAL */
            wire [INPUT_W+INDEX_W-1:0] number = {
                {INPUT_W {1'b0}}, slices[((SPARSE != 0) ? INDEX_W * g : 0) +: INDEX_W]
            };
            /* verilator lint_on UNUSEDSIGNAL */
            wire [INPUT_W-1:0] slice = window2 + number[INPUT_W-1:0];
            n3ic_cluster_ram #(.WIDTH(32), .ADDR_W(INPUT_W)) vectors (
                .clk(clk), .wr_en(in_en[g]), .wr_addr(in_next[g] ? in_next_row : in_row),
                .wr_data(in_bits[32*g +: 32]), .rd_addr(slice), .rd_data(inputs[32*g +: 32])
            );
        end
    endgenerate
    always @(posedge clk) begin
        weights1 <= weights;
        weights2 <= weights1;
    end

    // --- products and sums ----------------------------------------------------------------------
    // A product and a sum of products have SUM_W bits. The lowest number stands for no input.
    localparam signed [SUM_W-1:0]   NONE = {1'b1, {(SUM_W - 1) {1'b0}}};
    localparam signed [TOTAL_W-1:0] NO_INPUT = {{(TOTAL_W - SUM_W + 1) {1'b1}}, {(SUM_W - 1) {1'b0}}};
    reg fresh;  // the next row begins its columns
    always @(posedge clk) begin
        if (valid[STAGES-1]) fresh <= marked[STAGES-1];
        if (rst) fresh <= 1'b1;
    end
    wire [64*COLUMNS-1:0] totals;
    generate
        for (c = 0; c < COLUMNS; c = c + 1) begin : g_column
            wire [SUM_W*LANES-1:0] parts;
            for (l = 0; l < LANES; l = l + 1) begin : g_product
                wire signed [WEIGHT_W-1:0] weight =
                    weights2[WEIGHT_W*(LANES*c+l) +: WEIGHT_W];
                wire signed [31:0]         value  = inputs[32*l +: 32];
                reg  signed [SUM_W-1:0]    first, product;
                always @(posedge clk) begin
                    if (MAXIMUM != 0)
                        first <= (weight != {WEIGHT_W {1'b0}}) ? {{(SUM_W - 32) {value[31]}}, value}
                                                               : NONE;
                    else first <= weight * value;
                    product <= first;  // a register in the multiplier
                end
                assign parts[SUM_W*l +: SUM_W] = product;
            end
            wire signed [SUM_W-1:0] found;
            n3ic_cluster_combine #(.COUNT(LANES), .WIDTH(SUM_W), .MAXIMUM(MAXIMUM)) tree (
                .clk(clk), .parts(parts), .whole(found)
            );
            reg  signed [TOTAL_W-1:0] total;
            wire signed [TOTAL_W-1:0] wide = {{(TOTAL_W - SUM_W + 1) {found[SUM_W-1]}},
                                              found[SUM_W-2:0]};
            wire signed [TOTAL_W-1:0] next =
                fresh ? wide : (MAXIMUM != 0) ? ((wide > total) ? wide : total) : total + wide;
            always @(posedge clk) if (valid[STAGES-1]) total <= next;
            assign totals[64*c +: 64] =
                (MAXIMUM != 0 && next == NO_INPUT) ? 64'd0 : next;
        end
    endgenerate

    // --- what waits, and the order in which it leaves ---------------------------------------------
    wire                  push = valid[STAGES-1] && marked[STAGES-1];
    wire                  last_group, pop;
    wire [64*COLUMNS-1:0] group;
    wire [5:0]            level;
    assign room = level[5:4] == 2'd0;  // at most STAGES more follow
    n3ic_fifo #(.WIDTH(64 * COLUMNS + 1), .DEPTH_W(5)) sums (
        .clk(clk), .rst(rst), .push(push), .in_data({last[STAGES-1], totals}), .pop(pop),
        .out_data({last_group, group}), .level(level)
    );
    reg               lower;    // the lower word is next
    reg [GROUP_W-1:0] place;    // of the sum in its group
    reg [15:0]        column;
    wire take   = out_valid && out_ready;
    wire ending = lower && column == columns - 16'd1;
    wire [31:0] place_bits = {{(32 - GROUP_W) {1'b0}}, place};
    assign out_valid = level != 6'd0;
    assign out_word  = group[64*place_bits + (lower ? 0 : 32) +: 32];
    assign out_ends  = ending;
    assign out_last  = ending && last_group;
    assign pop       = take && (ending || (lower && place_bits == COLUMNS - 1));
    always @(posedge clk) begin
        if (take) begin
            lower <= !lower;
            if (lower) begin
                place  <= pop ? {GROUP_W {1'b0}} : place + 1'b1;
                column <= ending ? 16'd0 : column + 16'd1;
            end
        end
        if (rst) begin
            lower  <= 1'b0;
            place  <= {GROUP_W {1'b0}};
            column <= 16'd0;
        end
    end
endmodule
