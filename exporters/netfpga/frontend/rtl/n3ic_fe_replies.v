// SPDX-License-Identifier: Apache-2.0
// Keeps the payload of an answer until it is complete. Only then are its length and the sum of its
// bytes known, and whether to send it at all.
module n3ic_fe_replies #(
    parameter W       = 64,
    parameter CW      = 7,
    parameter TAG_W   = 99,
    parameter BEATS_W = 6  // 2^BEATS_W beats; an answer must fit
) (
    input  wire               clk,
    input  wire               rst,
    input  wire               in_valid,
    output wire               in_ready,
    input  wire               in_last,
    input  wire               in_keep,   // with the last beat
    input  wire [CW-1:0]      in_count,  // number of bytes; 0 only in a last beat
    input  wire [8*W-1:0]     in_data,
    input  wire [TAG_W-1:0]   in_tag,    // with the last beat

    output wire               meta_valid,
    output wire [TAG_W+31:0]  meta,      // tag, bytes, their sum
    input  wire               meta_pop,
    output reg                beat_valid,
    output reg  [8*W-1:0]     beat,
    input  wire               beat_pop
);
    localparam METAS_W = 5;
    reg  [8*W-1:0]   beats [0:(1 << BEATS_W)-1];
    reg  [BEATS_W:0] first, tail, end1, end2, end3, known, head;
    wire [METAS_W:0] metas;
    wire [BEATS_W:0] used = tail - head;
    assign in_ready = !used[BEATS_W] && metas < (1 << METAS_W) - 4;
    wire take = in_valid && in_ready;
    wire write = take && in_count != {CW {1'b0}};
    wire [BEATS_W:0] after = tail + {{BEATS_W {1'b0}}, write};

    reg              valid1, valid2, valid3, last1, last2, keep1, keep2, begun;
    reg  [CW-1:0]    count1, count2;
    reg  [TAG_W-1:0] tag1, tag2, tag3;
    reg  [31:0]      total;
    reg  [15:0]      length;
    wire [22:0]      sum2;
    n3ic_fe_sum #(.W(W)) words (.clk(clk), .data(in_data), .sum(sum2));
    // A beat without bytes is not written.
    always @(posedge clk) begin
        if (write) beats[tail[BEATS_W-1:0]] <= in_data;
        valid1 <= take && !rst;
        last1  <= in_last;
        keep1  <= in_keep;
        count1 <= in_count;
        tag1   <= in_tag;
        end1   <= after;
        valid2 <= valid1 && !rst;
        last2  <= last1;
        keep2  <= keep1;
        count2 <= count1;
        tag2   <= tag1;
        end2   <= end1;
        valid3 <= valid2 && last2 && keep2 && !rst;
        tag3   <= tag2;
        end3   <= end2;
        if (valid2) begin
            total  <= (begun ? total : 32'd0) + {9'd0, sum2};
            length <= (begun ? length : 16'd0) + {{(16 - CW) {1'b0}}, count2};
            begun  <= !last2;
        end
        if (take) tail <= in_last && !in_keep ? first : after;
        if (take && in_last && in_keep) first <= after;
        if (valid3) known <= end3;
        if (rst) begin
            first <= {(BEATS_W + 1) {1'b0}};
            tail  <= {(BEATS_W + 1) {1'b0}};
            known <= {(BEATS_W + 1) {1'b0}};
            begun <= 1'b0;
        end
    end
    wire [16:0] half = {1'b0, total[15:0]} + {1'b0, total[31:16]};
    wire [15:0] fold = half[15:0] + {15'd0, half[16]};
    n3ic_fe_fifo #(.WIDTH(TAG_W + 32), .DEPTH_W(METAS_W)) meta_queue (
        .clk(clk), .rst(rst), .push(valid3), .in_data({tag3, length, fold}),
        .out_valid(meta_valid), .out_data(meta), .pop(meta_pop), .level(metas)
    );
    wire next = (!beat_valid || beat_pop) && head != known;
    always @(posedge clk) begin
        if (next) beat <= beats[head[BEATS_W-1:0]];
        if (next) head <= head + 1'b1;
        beat_valid <= next || (beat_valid && !beat_pop);
        if (rst) begin
            head       <= {(BEATS_W + 1) {1'b0}};
            beat_valid <= 1'b0;
        end
    end
endmodule
