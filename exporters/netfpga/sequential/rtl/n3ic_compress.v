// SPDX-License-Identifier: Apache-2.0
// Counts the ones among six bits, with a register. The truth tables are written out, because
// synthesis turns + into a carry chain, which costs more than three tables of six inputs.
module n3ic_compress (
    input  wire       clk,
    input  wire [5:0] bits,
    output reg  [2:0] count
);
    localparam [63:0] BIT0 = 64'h6996966996696996;
    localparam [63:0] BIT1 = 64'h8117177e177e7ee8;
    localparam [63:0] BIT2 = 64'hfee8e880e8808000;
    always @(posedge clk) count <= {BIT2[bits], BIT1[bits], BIT0[bits]};
endmodule
