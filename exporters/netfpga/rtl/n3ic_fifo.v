// SPDX-License-Identifier: Apache-2.0
// A FIFO in distributed RAM. The output shows the oldest word.
module n3ic_fifo #(
    parameter WIDTH   = 8,
    parameter DEPTH_W = 4  // 2^DEPTH_W words
) (
    input  wire               clk,
    input  wire               rst,
    input  wire               push,
    input  wire [WIDTH-1:0]   in_data,
    input  wire               pop,
    output wire [WIDTH-1:0]   out_data,
    output reg  [DEPTH_W:0]   level
);
    (* ram_style = "distributed" *)
    reg [WIDTH-1:0]   words [0:(1 << DEPTH_W)-1];
    reg [DEPTH_W-1:0] head, tail;
    assign out_data = words[head];
    always @(posedge clk) begin
        if (push) words[tail] <= in_data;
        if (push) tail <= tail + 1'b1;
        if (pop) head <= head + 1'b1;
        if (push && !pop) level <= level + 1'b1;
        else if (pop && !push) level <= level - 1'b1;
        if (rst) begin
            head  <= {DEPTH_W {1'b0}};
            tail  <= {DEPTH_W {1'b0}};
            level <= {(DEPTH_W + 1) {1'b0}};
        end
    end
endmodule
