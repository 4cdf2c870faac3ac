// SPDX-License-Identifier: Apache-2.0
// Advances the CRC-32 of Ethernet (reflected 0x04C11DB7) by 64 bits, bit 0 first. The CRC is
// linear, so each output bit is the parity of fixed bits of state and word.
module n3ic_cluster_crc (
    input  wire [31:0] crc,
    input  wire [63:0] word,  // byte 0 in the low bits
    output wire [31:0] next
);
    function [31:0] step(input [31:0] x);
        step = {1'b0, x[31:1]} ^ (x[0] ? 32'hedb88320 : 32'd0);
    endfunction
    // The bits of the word on which an output bit depends: bit j is followed by 63 - j steps.
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
