// SPDX-License-Identifier: Apache-2.0
// The 5-tuple of a head, and its hash.
module n3ic_card_tuple #(
    parameter HEAD_W = 352
) (
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire [HEAD_W-1:0] head,
    /* verilator lint_on UNUSEDSIGNAL */
    output wire [31:0] source,
    output wire [31:0] destination,
    output wire [31:0] ports,  // the source's high
    output wire [7:0]  protocol,
    output wire [31:0] hash
);
    genvar b;
    generate
        for (b = 0; b < 4; b = b + 1) begin : g_byte
            assign source[8*(3-b) +: 8]      = head[8*(26+b) +: 8];
            assign destination[8*(3-b) +: 8] = head[8*(30+b) +: 8];
            assign ports[8*(3-b) +: 8]       = head[8*(34+b) +: 8];
        end
    endgenerate
    assign protocol = head[8*23 +: 8];
    n3ic_card_mix mix (
        .word(source ^ {destination[20:0], destination[31:21]} ^ {ports[12:0], ports[31:13]}
              ^ {24'd0, protocol}),
        .hash(hash)
    );
endmodule
