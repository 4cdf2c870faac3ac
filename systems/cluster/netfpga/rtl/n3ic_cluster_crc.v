// SPDX-License-Identifier: Apache-2.0
// CRC-32 of Ethernet (reflected 0x04C11DB7) over 64 bits more, of which bit 0 goes first. Each
// output bit is one parity: the carries of 64 steps are known beforehand.
module n3ic_cluster_crc (
    input  wire [31:0] crc,
    input  wire [63:0] word,  // byte 0 in the low bits
    output wire [31:0] next
);
    function [31:0] step(input [31:0] x);
        step = {1'b0, x[31:1]} ^ (x[0] ? 32'hedb88320 : 32'd0);
    endfunction
    // Which bits of the word an output bit depends on: bit j takes 63 - j steps to the end.
    function [63:0] mask(input [4:0] bit_);
        integer    j;
        reg [31:0] k;
        begin
            k = 32'hedb88320;
            for (j = 63; j >= 0; j = j - 1) begin
                mask[j] = k[bit_];
                k = step(k);
            end
        end
    endfunction
    wire [63:0] x = word ^ {32'd0, crc};
    genvar g;
    generate
        for (g = 0; g < 32; g = g + 1) begin : g_bit
            localparam [63:0] MASK = mask(g[4:0]);
            assign next[g] = ^(x & MASK);
        end
    endgenerate
endmodule
