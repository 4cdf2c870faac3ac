// SPDX-License-Identifier: Apache-2.0
// Words of a table's entry, gathered until the last one comes: then the entry changes in one clock.
// An address is 16 times the entry plus the word.
module n3ic_card_entry #(
    parameter WORDS = 1
) (
    input  wire                clk,
    input  wire                wr_en,
    input  wire [15:0]         wr_addr,
    input  wire [31:0]         wr_data,
    output reg                 commit,
    output reg  [11:0]         index,
    output reg  [32*WORDS-1:0] entry
);
    localparam LAST = WORDS - 1;
    integer w;
    always @(posedge clk) begin
        for (w = 0; w < WORDS; w = w + 1)
            if (wr_en && wr_addr[3:0] == w[3:0]) entry[32*w +: 32] <= wr_data;
        commit <= wr_en && wr_addr[3:0] == LAST[3:0];
        index  <= wr_addr[15:4];
    end
endmodule
