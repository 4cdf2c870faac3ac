// SPDX-License-Identifier: Apache-2.0
// The packager: turns the layer's results of a row into packets. A packet holds 384 bits for the
// next layer, or 12 scores of 32 bits for the home, or 16 partial popcounts of 16 bits for the
// reducers, starting at a multiple of 16; or 6 sums of 64 bits for the home, which come as two words
// each, like scores.
module n3ic_cluster_results (
    input  wire         clk,
    input  wire         rst,          // of a session
    // Kind of the packets: 0 bits, 1 scores, 2 partial popcounts
    input  wire [1:0]   mode,
    input  wire         wide,         // scores are halves of sums
    input  wire [7:0]   array,        // of this share
    input  wire [31:0]  start,
    input  wire [11:0]  first_word,   // of its inputs
    input  wire [7:0]   out_identifier,
    input  wire [7:0]   out_destination,
    input  wire [7:0]   out_array,
    input  wire [31:0]  out_end,      // neurons of the next layer, or sums of a window of all nodes
    input  wire [15:0]  row,          // of the results, held until the last packet is pushed
    // Results
    input  wire         in_valid,
    output wire         in_ready,
    input  wire         in_ends,      // of a window
    input  wire         in_last,      // of the row, and of a window
    input  wire         in_fires,
    input  wire [31:0]  in_value,
    // Packets
    output wire         out_valid,
    input  wire         out_ready,
    output wire         out_last,     // of the row
    output wire [511:0] out_packet
);
    localparam [1:0] BITS = 2'd0, SCORES = 2'd1;
    localparam [3:0] BODY = 4'd12;    // words

    reg  [31:0]  unit;     // the word being filled
    reg  [4:0]   filled;   // its filled bits or halves
    reg  [383:0] body;
    reg  [3:0]   words;    // filled words of the body
    reg  [4:0]   results;  // scores or popcounts in the body
    reg  [31:0]  at;       // index of the packet's first word or first result
    reg  [31:0]  window;   // index of the window's first result
    reg          last, window_ends, padding, ready;
    reg  [3:0]   left;     // words to pad
    wire         take  = in_valid && in_ready;
    wire [31:0]  bit_  = {31'd0, in_fires} << filled;
    wire [31:0]  now   = (mode == BITS) ? unit | bit_
                       : (mode == SCORES) ? in_value : {unit[15:0], in_value[15:0]};
    wire         whole = in_ends || mode == SCORES
                      || filled == ((mode == BITS) ? 5'd31 : 5'd1);
    // A single half goes into the upper half, which is first on the wire.
    wire [31:0]  word  = (mode[1] && filled == 5'd0) ? {in_value[15:0], 16'd0} : now;
    wire [3:0]   limit = mode[1] ? 4'd8 : BODY;
    wire         ends  = whole && (in_ends || words + 4'd1 == limit);
    wire [31:0]  some  = wide ? {28'd0, results[4:1]} : {27'd0, results};
    assign in_ready    = !padding && !ready;
    always @(posedge clk) begin
        if (take) begin
            unit    <= whole ? 32'd0 : now;
            filled  <= whole ? 5'd0 : filled + 5'd1;
            results <= results + 5'd1;
            if (whole) begin
                body    <= {body[351:0], word};
                words   <= words + 4'd1;
                last    <= in_last;
                window_ends <= in_ends;
                padding <= ends;
                left    <= BODY - 4'd1 - words;
            end
        end
        if (padding) begin
            // Words after the last one are 0.
            if (left != 4'd0) body <= {body[351:0], 32'd0};
            else begin
                padding <= 1'b0;
                ready   <= 1'b1;
            end
            left <= left - 4'd1;
        end
        if (ready && out_ready) begin
            ready   <= 1'b0;
            words   <= 4'd0;
            results <= 5'd0;
            at      <= window_ends ? 32'd0 : at + ((mode == BITS) ? {28'd0, words} : some);
            window  <= (last || !wide) ? 32'd0 : window_ends ? window + out_end : window;
        end
        if (rst) begin
            unit    <= 32'd0;
            filled  <= 5'd0;
            words   <= 4'd0;
            results <= 5'd0;
            at      <= 32'd0;
            window  <= 32'd0;
            padding <= 1'b0;
            ready   <= 1'b0;
        end
    end

    // --- headers ------------------------------------------------------------------------------
    wire [26:0] word_at = start[31:5] + at[26:0];
    wire [31:0] first   = (mode == SCORES) ? start + window + at : at;
    wire [31:0] behind  = first + some;
    wire        inputs  = out_identifier == 8'd2;
    wire [31:0] low     = inputs ? {word_at, 5'd0} : 32'd0;
    wire [31:0] high    = inputs ? {word_at, 5'd0} + {23'd0, words, 5'd0} : out_end;
    wire [127:0] bits   = {8'h01, out_identifier, out_destination, out_array, low, high, row,
                           words, word_at[11:0]};
    wire [127:0] scores = {8'h03, wide ? 8'h05 : 8'h03, 8'h00, array, first, behind, row, 16'd0};
    wire [127:0] sums   = {8'h01, 8'h03, out_destination, array, first, behind, row, 4'd0,
                           first_word};
    assign out_valid  = ready;
    assign out_last   = last;
    assign out_packet = {(mode == BITS) ? bits : (mode == SCORES) ? scores : sums, body};
endmodule
