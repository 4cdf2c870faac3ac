// SPDX-License-Identifier: Apache-2.0
// Computes the card's neurons of a binary layer, one slice of one neuron's weights per clock:
// XNOR, popcount, sum over the slices, threshold. Rows of weights are stored neuron by neuron. The
// slices of the input are written before the request. Pad bits are 1 in weights and 0 in inputs,
// so they never match.
//
// Results come in the order of the neurons, one every `ask_slices` clocks. A neuron starts only
// while `room` is high; at most PIPELINE results follow after it falls.
module n3ic_cluster_layer #(
    parameter SLICE    = 512,  // bits per clock, a multiple of 32
    parameter ROW_W    = 12,   // address bits of a row of weights
    parameter NEURON_W = 10,   // address bits of a threshold, at most ROW_W
    parameter INPUT_W  = 9,    // address bits of an input slice
    parameter SLICE_W  = 5,    // bits of the number of slices
    parameter MASKED   = 0     // 1: a mask selects the inputs that count
) (
    input  wire                clk,
    input  wire                rst,
    // Input words, which may start in one slice and end in the next
    input  wire [SLICE/32-1:0] in_en,
    input  wire [SLICE/32-1:0] in_next,     // 1: the word's row is in_next_row; 0: in_row
    input  wire [INPUT_W-1:0]  in_row,
    input  wire [INPUT_W-1:0]  in_next_row,
    input  wire [SLICE-1:0]    in_bits,
    // Requests: ask_count neurons (at least 1) of ask_slices slices each (at least 1)
    input  wire                ask_valid,
    output wire                ask_ready,
    input  wire [ROW_W-1:0]    ask_row,     // first row of the first neuron
    input  wire [NEURON_W-1:0] ask_neuron,  // its threshold
    input  wire [NEURON_W:0]   ask_count,
    input  wire [INPUT_W-1:0]  ask_input,   // first slice of the input
    input  wire [SLICE_W-1:0]  ask_slices,
    // Results
    input  wire                room,
    output reg                 out_valid,
    output reg                 out_last,    // last result of the request
    output reg                 out_fires,   // sum >= threshold
    output reg  [31:0]         out_sum,
    output reg  [31:0]         out_score,   // sum + bias
    // Weights, masks, and thresholds or biases (signed)
    input  wire                wr_weight,
    input  wire                wr_mask,
    input  wire                wr_bound,
    input  wire [ROW_W-1:0]    wr_row,      // of weights, or the neuron
    input  wire [7:0]          wr_word,     // 32 bits of the row, the lowest first
    input  wire [31:0]         wr_data
);
    localparam WORDS   = SLICE / 32;
    localparam COUNT_W = $clog2(SLICE + 1);
    localparam SIDE_W  = NEURON_W + 3;

    // --- addresses ------------------------------------------------------------------------
    reg                busy;
    reg [ROW_W-1:0]    row;
    reg [NEURON_W-1:0] neuron;
    reg [NEURON_W:0]   left;      // neurons, this one included
    reg [INPUT_W-1:0]  input_at;
    reg [SLICE_W-1:0]  slices, slice;
    wire first = slice == {SLICE_W {1'b0}};
    wire last  = slice == slices - 1'b1;
    wire end_  = left == {{NEURON_W {1'b0}}, 1'b1};
    // Only a neuron's first slice waits: a neuron that has begun is never interrupted.
    wire issue = busy && (!first || room);
    assign ask_ready = !busy;
    always @(posedge clk) begin
        if (ask_valid && ask_ready) begin
            busy     <= 1'b1;
            row      <= ask_row;
            neuron   <= ask_neuron;
            left     <= ask_count;
            input_at <= ask_input;
            slices   <= ask_slices;
            slice    <= {SLICE_W {1'b0}};
        end else if (issue) begin
            row   <= row + 1'b1;
            slice <= last ? {SLICE_W {1'b0}} : slice + 1'b1;
            if (last) begin
                neuron <= neuron + 1'b1;
                left   <= left - 1'b1;
                busy   <= !end_;
            end
        end
        if (rst) busy <= 1'b0;
    end

    // --- memories ---------------------------------------------------------------------------
    wire [SLICE-1:0]   weights, masks, inputs;
    wire [INPUT_W-1:0] input_row = input_at + {{(INPUT_W - SLICE_W) {1'b0}}, slice};
    genvar g;
    generate
        for (g = 0; g < WORDS; g = g + 1) begin : g_word
            n3ic_cluster_ram #(.WIDTH(32), .ADDR_W(ROW_W)) rows (
                .clk(clk), .wr_en(wr_weight && wr_word == g), .wr_addr(wr_row),
                .wr_data(wr_data), .rd_addr(row), .rd_data(weights[32*g +: 32])
            );
            n3ic_cluster_ram #(.WIDTH(32), .ADDR_W(INPUT_W)) vectors (
                .clk(clk), .wr_en(in_en[g]), .wr_addr(in_next[g] ? in_next_row : in_row),
                .wr_data(in_bits[32*g +: 32]), .rd_addr(input_row),
                .rd_data(inputs[32*g +: 32])
            );
            if (MASKED != 0) begin : g_mask
                n3ic_cluster_ram #(.WIDTH(32), .ADDR_W(ROW_W)) counted (
                    .clk(clk), .wr_en(wr_mask && wr_word == g), .wr_addr(wr_row),
                    .wr_data(wr_data), .rd_addr(row), .rd_data(masks[32*g +: 32])
                );
            end else begin : g_all
                /* verilator lint_off UNUSEDSIGNAL */
                wire unused = wr_mask;
                /* verilator lint_on UNUSEDSIGNAL */
                assign masks[32*g +: 32] = 32'hffffffff;
            end
        end
    endgenerate

    // --- counts -------------------------------------------------------------------------------
    reg              valid1, valid2;
    reg [SIDE_W-1:0] side1, side2;
    always @(posedge clk) begin
        valid1 <= issue && !rst;
        valid2 <= valid1 && !rst;
        side1  <= {neuron, end_, last, first};
        side2  <= side1;
    end
    wire               counted;
    wire [COUNT_W-1:0] count;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [SIDE_W-1:0]  side, early;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [31:0]        bound;
    n3ic_popcount #(.N(SLICE), .W(COUNT_W), .SIDE_W(SIDE_W), .MASKED(MASKED)) popcount (
        .clk(clk), .rst(rst), .in_valid(valid2), .in_side(side2), .weights(weights),
        .mask(masks), .inputs(inputs), .out_valid(counted), .out_side(side),
        .side_early(early), .count(count)
    );
    n3ic_cluster_ram #(.WIDTH(32), .ADDR_W(NEURON_W)) bounds (
        .clk(clk), .wr_en(wr_bound), .wr_addr(wr_row[NEURON_W-1:0]), .wr_data(wr_data),
        .rd_addr(early[SIDE_W-1:3]), .rd_data(bound)
    );
    reg         summed, summed_end;
    reg  [31:0] sum, bound_q;
    wire [31:0] base = side[0] ? 32'd0 : sum;
    always @(posedge clk) begin
        summed     <= counted && side[1] && !rst;
        summed_end <= side[2];
        if (counted) sum <= base + {{(32 - COUNT_W) {1'b0}}, count};
        bound_q    <= bound;
        out_valid  <= summed && !rst;
        out_last   <= summed_end;
        out_fires  <= sum >= bound_q;
        out_sum    <= sum;
        out_score  <= sum + bound_q;
    end
endmodule
