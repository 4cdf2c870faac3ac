// SPDX-License-Identifier: Apache-2.0
// Computes the ones' complement sum of a beat's 16-bit words, in two clocks.
module n3ic_fe_sum #(
    parameter W = 64
) (
    input  wire           clk,
    input  wire [8*W-1:0] data,  // the first byte of a word lowest
    output reg  [22:0]    sum
);
    localparam GROUPS = W / 8;
    integer i;
    reg [18*GROUPS-1:0] parts;
    reg [22:0]          total;
    always @* begin
        total = 23'd0;
        for (i = 0; i < GROUPS; i = i + 1) total = total + {5'd0, parts[18*i +: 18]};
    end
    always @(posedge clk) begin
        for (i = 0; i < GROUPS; i = i + 1)
            parts[18*i +: 18] <= {2'd0, data[64*i +: 8], data[64*i + 8 +: 8]}
                + {2'd0, data[64*i + 16 +: 8], data[64*i + 24 +: 8]}
                + {2'd0, data[64*i + 32 +: 8], data[64*i + 40 +: 8]}
                + {2'd0, data[64*i + 48 +: 8], data[64*i + 56 +: 8]};
        sum <= total;
    end
endmodule
