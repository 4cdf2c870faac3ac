// SPDX-License-Identifier: Apache-2.0
// The way back from the regions: one packet per clock, with regions in turn.
module n3ic_card_exits #(
    parameter REGIONS = 2,
    parameter WIDTH   = 64
) (
    input  wire                     clk,
    input  wire                     rst,
    input  wire [REGIONS-1:0]       in_valid,
    output wire [REGIONS-1:0]       in_ready,
    input  wire [REGIONS*WIDTH-1:0] in_data,
    output reg                      out_valid,
    output reg  [WIDTH-1:0]         out_data
);
    n3ic_card_turns #(.N(REGIONS)) turns (
        .clk(clk), .rst(rst), .asks(in_valid), .taken(|in_valid), .turn(in_ready)
    );
    reg [WIDTH-1:0] chosen;
    integer i;
    always @* begin
        chosen = {WIDTH {1'b0}};
        for (i = 0; i < REGIONS; i = i + 1)
            chosen = chosen | (in_data[WIDTH*i +: WIDTH] & {WIDTH {in_ready[i]}});
    end
    always @(posedge clk) begin
        out_valid <= |in_valid && !rst;
        out_data  <= chosen;
    end
endmodule
