// SPDX-License-Identifier: Apache-2.0
// Simple dual-port RAM: a write port and a read port of two clocks (address, output register).
// A read in the clock of a write to the same address returns an unknown value, so readers wait
// one clock after the write.
module n3ic_cluster_ram #(
    parameter WIDTH  = 480,
    parameter ADDR_W = 9
) (
    input  wire              clk,
    input  wire              wr_en,
    input  wire [ADDR_W-1:0] wr_addr,
    input  wire [WIDTH-1:0]  wr_data,
    input  wire [ADDR_W-1:0] rd_addr,
    output reg  [WIDTH-1:0]  rd_data
);
    (* ram_style = "block", no_rw_check *)
    reg [WIDTH-1:0] words [0:(1 << ADDR_W)-1];
    reg [WIDTH-1:0] read;
    always @(posedge clk) begin
        if (wr_en) words[wr_addr] <= wr_data;
        read    <= words[rd_addr];
        rd_data <= read;
    end
endmodule
