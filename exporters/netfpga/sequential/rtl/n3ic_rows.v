// SPDX-License-Identifier: Apache-2.0
// The first half of a layer: reads a row of weights each clock and counts its agreements with
// the input. A row holds LANES neurons, or one of CHUNKS parts of a neuron.
//
// An input is taken in the clock after its first row is addressed (`in_ready` follows `in_valid`),
// so the rows of one input follow those of the last without a gap.
module n3ic_rows #(
    parameter N       = 256,  // inputs of a neuron
    parameter LANES   = 1,    // neurons of a row
    parameter CHUNKS  = 1,    // rows of a neuron; 1 if LANES > 1
    parameter PART    = 256,  // inputs of one neuron in a row, a multiple of 32 if CHUNKS > 1
    parameter GROUPS  = 32,   // rows / CHUNKS
    parameter GROUP_W = 5,    // address bits of a group
    parameter ROW_W   = 5,    // address bits of a row
    parameter WORD_W  = 3,    // address bits of a word of a row
    parameter W       = 9,    // bits of a count, clog2(N + 2) as a threshold may be N + 1
    parameter MASKED  = 0,
    parameter TABLES  = 0,
    parameter BLOCK   = 1,    // memory in block RAM
    parameter BANK_W  = 1,    // bits of a bank's number
    parameter WEIGHTS = "weights.mem",
    parameter MASKS   = "masks.mem"
) (
    input  wire               clk,
    input  wire               rst,
    // Input vectors
    input  wire               in_valid,
    output wire               in_ready,
    input  wire [N-1:0]       in_bits,
    input  wire [BANK_W-1:0]  in_bank,
    input  wire               start_ok,   // the second half has room for another vector
    output wire               started,
    // Counts, a group of LANES neurons each
    output wire               out_valid,
    output wire [BANK_W-1:0]  out_bank,
    output wire [GROUP_W-1:0] out_group,
    output wire [LANES*W-1:0] out_counts,
    output wire [BANK_W-1:0]  early_bank,  // two clocks before
    output wire [GROUP_W-1:0] early_group,
    // Write port, into the bank that no vector uses
    input  wire               wr_weights,
    input  wire               wr_masks,
    input  wire [BANK_W-1:0]  wr_bank,
    input  wire [ROW_W-1:0]   wr_row,
    input  wire [WORD_W-1:0]  wr_word,
    input  wire [31:0]        wr_data
);
    localparam LANE_WORDS = (PART + 31) / 32;
    localparam WORDS      = LANES * LANE_WORDS;
    localparam CHUNK_W    = (CHUNKS > 1) ? $clog2(CHUNKS) : 1;
    localparam SIDE_W     = 2 + BANK_W + GROUP_W;
    localparam PW         = (CHUNKS > 1) ? $clog2(PART + 1) : W;
    localparam LAST_GROUP = GROUPS - 1;
    localparam LAST_CHUNK = CHUNKS - 1;

    // --- addresses ------------------------------------------------------------------------
    reg                busy, take;
    reg  [BANK_W-1:0]  bank;
    reg  [ROW_W-1:0]   row;
    reg  [GROUP_W-1:0] group;
    reg  [CHUNK_W-1:0] chunk;
    wire start      = in_valid && start_ok && !busy && !take;
    wire issue      = start || busy;
    wire [BANK_W-1:0] now_bank = busy ? bank : in_bank;
    wire last_chunk = chunk == LAST_CHUNK[CHUNK_W-1:0];
    wire last       = last_chunk && group == LAST_GROUP[GROUP_W-1:0];
    assign in_ready = take;
    assign started  = start;
    always @(posedge clk) begin
        take <= start && !rst;
        if (start) bank <= in_bank;
        if (issue) begin
            busy  <= !last;
            row   <= last ? {ROW_W {1'b0}} : row + 1'b1;
            chunk <= last_chunk ? {CHUNK_W {1'b0}} : chunk + 1'b1;
            if (last_chunk) group <= last ? {GROUP_W {1'b0}} : group + 1'b1;
        end
        if (rst) begin
            busy  <= 1'b0;
            row   <= {ROW_W {1'b0}};
            chunk <= {CHUNK_W {1'b0}};
            group <= {GROUP_W {1'b0}};
        end
    end

    // --- delays, as long as the read of a row --------------------------------------------------
    wire [SIDE_W-1:0]  side0 = {now_bank, chunk == {CHUNK_W {1'b0}}, last_chunk, group};
    reg  [SIDE_W-1:0]  side1, side2;
    reg  [CHUNK_W-1:0] chunk1, chunk2;
    reg                valid1, valid2;
    reg  [N-1:0]       x;
    always @(posedge clk) begin
        side1  <= side0;
        side2  <= side1;
        chunk1 <= chunk;
        chunk2 <= chunk1;
        valid1 <= issue && !rst;
        valid2 <= valid1 && !rst;
        if (take) x <= in_bits;
    end

    // --- memories ---------------------------------------------------------------------------
    // Words are padded to 32 bits; the pad is read and not used.
    /* verilator lint_off UNUSEDSIGNAL */
    wire [32*WORDS-1:0] weights, masks;
    /* verilator lint_on UNUSEDSIGNAL */
    n3ic_memory #(
        .WORDS(WORDS), .ADDR_W(ROW_W + BANK_W), .WORD_W(WORD_W), .BLOCK(BLOCK), .INIT(WEIGHTS)
    ) weight_rows (
        .clk(clk), .wr_en(wr_weights), .wr_row({wr_bank, wr_row}), .wr_word(wr_word),
        .wr_data(wr_data), .rd_row({now_bank, row}), .rd_data(weights)
    );
    generate
        if (MASKED != 0) begin : g_masks
            n3ic_memory #(
                .WORDS(WORDS), .ADDR_W(ROW_W + BANK_W), .WORD_W(WORD_W), .BLOCK(BLOCK), .INIT(MASKS)
            ) mask_rows (
                .clk(clk), .wr_en(wr_masks), .wr_row({wr_bank, wr_row}), .wr_word(wr_word),
                .wr_data(wr_data), .rd_row({now_bank, row}), .rd_data(masks)
            );
        end else begin : g_no_masks
            /* verilator lint_off UNUSEDSIGNAL */
            wire unused = wr_masks;
            /* verilator lint_on UNUSEDSIGNAL */
            assign masks = {32*WORDS {1'b1}};
        end
    endgenerate

    // --- counts -------------------------------------------------------------------------------
    wire [PART-1:0] part;
    generate
        if (CHUNKS > 1) begin : g_part
            // Inputs above N are 0 and their weights 1, so that they never agree.
            wire [CHUNKS*PART-1:0] padded;
            if (CHUNKS * PART > N) begin : g_pad
                assign padded = {{(CHUNKS * PART - N) {1'b0}}, x};
            end else begin : g_exact
                assign padded = x;
            end
            assign part = padded[PART*chunk2 +: PART];
        end else begin : g_whole
            /* verilator lint_off UNUSEDSIGNAL */
            wire [CHUNK_W-1:0] unused = chunk2;
            /* verilator lint_on UNUSEDSIGNAL */
            assign part = x;
        end
    endgenerate

    // All lanes run in step, so the side output of the first is that of all.
    /* verilator lint_off UNUSEDSIGNAL */
    wire [LANES-1:0]    valids;
    wire [SIDE_W-1:0]   sides  [0:LANES-1];
    wire [SIDE_W-1:0]   earlys [0:LANES-1];
    /* verilator lint_on UNUSEDSIGNAL */
    wire [LANES*PW-1:0] counts;
    genvar g;
    generate
        for (g = 0; g < LANES; g = g + 1) begin : g_lane
            n3ic_popcount #(
                .N(PART), .W(PW), .SIDE_W(SIDE_W), .MASKED(MASKED), .TABLES(TABLES)
            ) popcount (
                .clk(clk), .rst(rst), .in_valid(valid2), .in_side(side2),
                .weights(weights[32*LANE_WORDS*g +: PART]),
                .mask(masks[32*LANE_WORDS*g +: PART]), .inputs(part),
                .out_valid(valids[g]), .out_side(sides[g]), .side_early(earlys[g]),
                .count(counts[PW*g +: PW])
            );
        end
        if (CHUNKS > 1) begin : g_sum
            reg                valid;
            reg  [W-1:0]       sum;
            reg  [BANK_W-1:0]  sum_bank, early_bank_q;
            reg  [GROUP_W-1:0] sum_group, early_group_q;
            wire [W-1:0]       base = sides[0][GROUP_W+1] ? {W {1'b0}} : sum;
            always @(posedge clk) begin
                valid <= valids[0] && sides[0][GROUP_W] && !rst;
                if (valids[0]) sum <= base + {{(W - PW) {1'b0}}, counts};
                sum_bank      <= sides[0][SIDE_W-1 -: BANK_W];
                sum_group     <= sides[0][GROUP_W-1:0];
                early_bank_q  <= earlys[0][SIDE_W-1 -: BANK_W];
                early_group_q <= earlys[0][GROUP_W-1:0];
            end
            assign out_valid   = valid;
            assign out_bank    = sum_bank;
            assign out_group   = sum_group;
            assign out_counts  = sum;
            assign early_bank  = early_bank_q;
            assign early_group = early_group_q;
        end else begin : g_direct
            assign out_valid   = valids[0];
            assign out_bank    = sides[0][SIDE_W-1 -: BANK_W];
            assign out_group   = sides[0][GROUP_W-1:0];
            assign out_counts  = counts;
            assign early_bank  = earlys[0][SIDE_W-1 -: BANK_W];
            assign early_group = earlys[0][GROUP_W-1:0];
        end
    endgenerate
endmodule
