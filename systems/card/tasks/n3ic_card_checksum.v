// SPDX-License-Identifier: Apache-2.0
// The checksum of a header in which a word of 32 bits changes (RFC 1624, equation 3).
module n3ic_card_checksum (
    input  wire [15:0] checksum,
    input  wire [31:0] old,
    input  wire [31:0] now,
    output wire [15:0] result
);
    wire [18:0] total = {3'd0, ~checksum} + {3'd0, ~old[31:16]} + {3'd0, ~old[15:0]}
                    + {3'd0, now[31:16]} + {3'd0, now[15:0]};
    wire [16:0] once = {1'b0, total[15:0]} + {14'd0, total[18:16]};
    assign result = ~(once[15:0] + {15'd0, once[16]});
endmodule
