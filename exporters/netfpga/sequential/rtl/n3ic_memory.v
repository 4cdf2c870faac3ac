// SPDX-License-Identifier: Apache-2.0
// A memory of rows of 32-bit words. One port writes a word, the other reads a whole row.
// A read takes two clocks (address, output register), as in the paper.
module n3ic_memory #(
    parameter WORDS  = 8,            // 32-bit words of a row
    parameter ADDR_W = 6,            // address bits of a row, the bank on top
    parameter WORD_W = 3,            // address bits of a word, at least clog2(WORDS)
    parameter BLOCK  = 1,            // 1: block RAM, 0: distributed RAM
    parameter INIT   = "weights.mem" // rows in hexadecimal, both banks
) (
    input  wire                  clk,
    input  wire                  wr_en,
    input  wire [ADDR_W-1:0]     wr_row,
    input  wire [WORD_W-1:0]     wr_word,
    input  wire [31:0]           wr_data,
    input  wire [ADDR_W-1:0]     rd_row,
    output reg  [32*WORDS-1:0]   rd_data
);
    reg  [32*WORDS-1:0] read;
    wire [WORDS-1:0]    wr_mask;
    genvar g;
    generate
        for (g = 0; g < WORDS; g = g + 1) begin : g_mask
            assign wr_mask[g] = wr_en && wr_word == g;
        end
        // The style attribute must be a literal, so there are two copies of one description.
        // Reads and writes never collide, because they go to different banks (no_rw_check).
        if (BLOCK != 0) begin : g_block
            (* ram_style = "block", no_rw_check *)
            reg [32*WORDS-1:0] rows [0:(1 << ADDR_W)-1];
            integer i;
            initial $readmemh(INIT, rows);
            always @(posedge clk) begin
                for (i = 0; i < WORDS; i = i + 1)
                    if (wr_mask[i]) rows[wr_row][32*i +: 32] <= wr_data;
                read <= rows[rd_row];
            end
        end else begin : g_distributed
            (* ram_style = "distributed", no_rw_check *)
            reg [32*WORDS-1:0] rows [0:(1 << ADDR_W)-1];
            integer i;
            initial $readmemh(INIT, rows);
            always @(posedge clk) begin
                for (i = 0; i < WORDS; i = i + 1)
                    if (wr_mask[i]) rows[wr_row][32*i +: 32] <= wr_data;
                read <= rows[rd_row];
            end
        end
    endgenerate
    always @(posedge clk) rd_data <= read;
endmodule
