// SPDX-License-Identifier: Apache-2.0
// Sums the 16-bit big-endian words of a beat, with bytes outside the mask as 0: the first step of
// an Internet checksum (RFC 1071). Takes one clock.
module n3ic_cluster_sum (
    input  wire         clk,
    input  wire [255:0] beat,
    input  wire [31:0]  mask,
    output reg  [19:0]  sum
);
    // 16 words of at most 2^16 - 1 fit 20 bits; the carries are folded back by the reader.
    integer i;
    reg [19:0] total;
    always @* begin
        total = 20'd0;
        for (i = 0; i < 16; i = i + 1)
            total = total + {4'd0, beat[16*i +: 8] & {8 {mask[2*i]}},
                             beat[16*i+8 +: 8] & {8 {mask[2*i+1]}}};
    end
    always @(posedge clk) sum <= total;
endmodule
