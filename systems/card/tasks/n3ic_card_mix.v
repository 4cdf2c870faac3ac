// SPDX-License-Identifier: Apache-2.0
// Spreads the bits of a word (xorshift of Marsaglia, 13, 17, 5).
module n3ic_card_mix (
    input  wire [31:0] word,
    output wire [31:0] hash
);
    wire [31:0] a = word ^ {word[18:0], 13'd0};
    wire [31:0] b = a ^ {17'd0, a[31:17]};
    assign hash = b ^ {b[26:0], 5'd0};
endmodule
