// SPDX-License-Identifier: Apache-2.0
// The entries of one lane's tables for one sum, in two banks. One port writes an entry, the other
// reads one: address, then output register. Reads and writes never collide, because they go to
// different banks (no_rw_check).
module n3ic_entries #(
    parameter W      = 4,            // bits of an entry
    parameter ADDR_W = 10,           // address bits: bank, turn, index
    parameter BLOCK  = 1,            // 1: block RAM, 0: distributed RAM
    parameter INIT   = "entries.mem" // entries in hexadecimal, both banks
) (
    input  wire              clk,
    input  wire              wr_en,
    input  wire [ADDR_W-1:0] wr_row,
    input  wire [W-1:0]      wr_data,
    input  wire [ADDR_W-1:0] rd_row,
    output reg  [W-1:0]      rd_data
);
    reg [W-1:0] read;
    generate
        // The style attribute must be a literal, so there are two copies of one description.
        if (BLOCK != 0) begin : g_block
            (* ram_style = "block", no_rw_check *)
            reg [W-1:0] rows [0:(1 << ADDR_W)-1];
            initial $readmemh(INIT, rows);
            always @(posedge clk) begin
                if (wr_en) rows[wr_row] <= wr_data;
                read <= rows[rd_row];
            end
        end else begin : g_distributed
            (* ram_style = "distributed", no_rw_check *)
            reg [W-1:0] rows [0:(1 << ADDR_W)-1];
            initial $readmemh(INIT, rows);
            always @(posedge clk) begin
                if (wr_en) rows[wr_row] <= wr_data;
                read <= rows[rd_row];
            end
        end
    endgenerate
    always @(posedge clk) rd_data <= read;
endmodule
