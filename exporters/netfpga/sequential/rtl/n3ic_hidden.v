// SPDX-License-Identifier: Apache-2.0
// The second half of a hidden layer: compares counts with thresholds, and gathers the bits. One
// vector may wait in `hold` while the next one is gathered, so layers overlap.
module n3ic_hidden #(
    parameter M       = 32,  // neurons
    parameter LANES   = 1,
    parameter GROUPS  = 32,  // ceil(M / LANES)
    parameter GROUP_W = 5,
    parameter WORD_W  = 1,   // address bits of a threshold of a group
    parameter W       = 9,   // bits of a count and of a threshold
    parameter BLOCK   = 0,
    parameter BANK_W  = 1,   // bits of a bank's number
    parameter THRESHOLDS = "thresholds.mem"
) (
    input  wire               clk,
    input  wire               rst,
    input  wire               in_valid,
    input  wire [BANK_W-1:0]  in_bank,
    input  wire [GROUP_W-1:0] in_group,
    input  wire [LANES*W-1:0] in_counts,
    input  wire [BANK_W-1:0]  early_bank,
    input  wire [GROUP_W-1:0] early_group,
    input  wire               started,
    output wire               start_ok,
    output wire               out_valid,
    input  wire               out_ready,
    output wire [M-1:0]       out_bits,
    output wire [BANK_W-1:0]  out_bank,
    input  wire               wr_en,
    input  wire [BANK_W-1:0]  wr_bank,
    input  wire [GROUP_W-1:0] wr_group,
    input  wire [WORD_W-1:0]  wr_word,
    input  wire [31:0]        wr_data
);
    localparam LAST_GROUP = GROUPS - 1;
    localparam BITS = GROUPS * LANES;

    /* verilator lint_off UNUSEDSIGNAL */
    wire [32*LANES-1:0] thresholds;
    /* verilator lint_on UNUSEDSIGNAL */
    n3ic_memory #(
        .WORDS(LANES), .ADDR_W(GROUP_W + BANK_W), .WORD_W(WORD_W), .BLOCK(BLOCK), .INIT(THRESHOLDS)
    ) threshold_rows (
        .clk(clk), .wr_en(wr_en), .wr_row({wr_bank, wr_group}), .wr_word(wr_word),
        .wr_data(wr_data), .rd_row({early_bank, early_group}), .rd_data(thresholds)
    );

    wire [LANES-1:0] fire;
    genvar g;
    generate
        for (g = 0; g < LANES; g = g + 1) begin : g_lane
            assign fire[g] = in_counts[W*g +: W] >= thresholds[32*g +: W];
        end
    endgenerate

    reg  [BITS-1:0] gathered;
    /* verilator lint_off UNUSEDSIGNAL */
    reg  [BITS-1:0] hold;  // bits above M are lanes of the last row without a neuron
    /* verilator lint_on UNUSEDSIGNAL */
    reg              full, hold_valid;
    reg [BANK_W-1:0] full_bank, hold_bank;
    wire            move = full && (!hold_valid || out_ready);
    generate
        if (GROUPS > 1) begin : g_shift
            always @(posedge clk) if (in_valid) gathered <= {fire, gathered[BITS-1:LANES]};
        end else begin : g_row
            always @(posedge clk) if (in_valid) gathered <= fire;
        end
    endgenerate

    // Nothing is overwritten: at most two vectors are between their first row and the next layer,
    // one that is gathered and one that is held.
    reg  [1:0] pending;
    wire       taken = hold_valid && out_ready;
    assign start_ok  = !pending[1];
    always @(posedge clk) begin
        if (in_valid) begin
            full      <= in_group == LAST_GROUP[GROUP_W-1:0];
            full_bank <= in_bank;
        end else if (move) full <= 1'b0;
        if (move) begin
            hold      <= gathered;
            hold_bank <= full_bank;
        end
        if (move) hold_valid <= 1'b1;
        else if (out_ready) hold_valid <= 1'b0;
        if (started && !taken) pending <= pending + 2'd1;
        else if (!started && taken) pending <= pending - 2'd1;
        if (rst) begin
            full       <= 1'b0;
            hold_valid <= 1'b0;
            pending     <= 2'd0;
        end
    end
    assign out_valid = hold_valid;
    assign out_bits  = hold[M-1:0];
    assign out_bank  = hold_bank;
endmodule
