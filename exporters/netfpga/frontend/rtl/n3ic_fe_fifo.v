// SPDX-License-Identifier: Apache-2.0
// A FIFO in a memory with a read latency of one clock. The output shows the oldest word.
module n3ic_fe_fifo #(
    parameter WIDTH   = 8,
    parameter DEPTH_W = 5  // 2^DEPTH_W words
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             push,
    input  wire [WIDTH-1:0] in_data,
    output wire             out_valid,
    output wire [WIDTH-1:0] out_data,
    input  wire             pop,
    output reg  [DEPTH_W:0] level  // number of words, including the one at the output
);
    reg [WIDTH-1:0]   words [0:(1 << DEPTH_W)-1];
    reg [DEPTH_W-1:0] head, tail;
    reg [WIDTH-1:0]   word;
    reg               valid;
    assign out_valid = valid;
    assign out_data  = word;
    wire next = (!valid || pop) && level != {{DEPTH_W {1'b0}}, valid};
    always @(posedge clk) begin
        if (push) words[tail] <= in_data;
        if (next) word <= words[head];
    end
    always @(posedge clk) begin
        if (push) tail <= tail + 1'b1;
        if (next) head <= head + 1'b1;
        valid <= next || (valid && !pop);
        if (push && !pop) level <= level + 1'b1;
        else if (pop && !push) level <= level - 1'b1;
        if (rst) begin
            head  <= {DEPTH_W {1'b0}};
            tail  <= {DEPTH_W {1'b0}};
            level <= {(DEPTH_W + 1) {1'b0}};
            valid <= 1'b0;
        end
    end
endmodule
