// SPDX-License-Identifier: Apache-2.0
// A head that goes back to its sender: hardware addresses, addresses and ports change places.
module n3ic_card_reply #(
    parameter HEAD_W = 352
) (
    input  wire [HEAD_W-1:0] head,
    output wire [HEAD_W-1:0] reply
);
    assign reply = {head[HEAD_W-1:8*38], head[8*34 +: 16], head[8*36 +: 16], head[8*26 +: 32],
                    head[8*30 +: 32], head[8*26-1:8*12], head[0 +: 48], head[48 +: 48]};
endmodule
