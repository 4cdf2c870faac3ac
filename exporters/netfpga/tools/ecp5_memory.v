// SPDX-License-Identifier: Apache-2.0
// n3ic_memory as Lattice ECP5 primitives. The output register is inside the block, where Yosys does
// not place it by itself. The module serves timing only: its contents are zero.
// It covers block memories of up to 512 rows; others are as in rtl/n3ic_memory.v.
module n3ic_memory #(
    parameter WORDS  = 8,
    parameter ADDR_W = 6,
    parameter WORD_W = 3,
    parameter BLOCK  = 1,
    parameter INIT   = "weights.mem"
) (
    input  wire                clk,
    input  wire                wr_en,
    input  wire [ADDR_W-1:0]   wr_row,
    input  wire [WORD_W-1:0]   wr_word,
    input  wire [31:0]         wr_data,
    input  wire [ADDR_W-1:0]   rd_row,
    output wire [32*WORDS-1:0] rd_data
);
    wire [WORDS-1:0] wr_mask;
    genvar g;
    generate
        for (g = 0; g < WORDS; g = g + 1) begin : g_mask
            assign wr_mask[g] = wr_en && wr_word == g;
        end
        if (BLOCK != 0 && ADDR_W <= 9) begin : g_block
            wire [8:0] write_at, read_at;
            if (ADDR_W < 9) begin : g_pad
                assign write_at = {{(9 - ADDR_W) {1'b0}}, wr_row};
                assign read_at  = {{(9 - ADDR_W) {1'b0}}, rd_row};
            end else begin : g_exact
                assign write_at = wr_row;
                assign read_at  = rd_row;
            end
            for (g = 0; g < WORDS; g = g + 1) begin : g_word
                wire [3:0] unused;
                PDPW16KD #(
                    .DATA_WIDTH_W(36), .DATA_WIDTH_R(36), .REGMODE("OUTREG"), .GSR("DISABLED")
                ) block (
                    .DI35(1'b0), .DI34(1'b0), .DI33(1'b0), .DI32(1'b0),
                    .DI31(wr_data[31]), .DI30(wr_data[30]), .DI29(wr_data[29]),
                    .DI28(wr_data[28]), .DI27(wr_data[27]), .DI26(wr_data[26]),
                    .DI25(wr_data[25]), .DI24(wr_data[24]), .DI23(wr_data[23]),
                    .DI22(wr_data[22]), .DI21(wr_data[21]), .DI20(wr_data[20]),
                    .DI19(wr_data[19]), .DI18(wr_data[18]), .DI17(wr_data[17]),
                    .DI16(wr_data[16]), .DI15(wr_data[15]), .DI14(wr_data[14]),
                    .DI13(wr_data[13]), .DI12(wr_data[12]), .DI11(wr_data[11]),
                    .DI10(wr_data[10]), .DI9(wr_data[9]), .DI8(wr_data[8]),
                    .DI7(wr_data[7]), .DI6(wr_data[6]), .DI5(wr_data[5]),
                    .DI4(wr_data[4]), .DI3(wr_data[3]), .DI2(wr_data[2]),
                    .DI1(wr_data[1]), .DI0(wr_data[0]),
                    .ADW8(write_at[8]), .ADW7(write_at[7]), .ADW6(write_at[6]), .ADW5(write_at[5]),
                    .ADW4(write_at[4]), .ADW3(write_at[3]), .ADW2(write_at[2]), .ADW1(write_at[1]),
                    .ADW0(write_at[0]), .BE3(1'b1), .BE2(1'b1), .BE1(1'b1), .BE0(1'b1),
                    .CEW(wr_mask[g]), .CLKW(clk), .CSW2(1'b0), .CSW1(1'b0), .CSW0(1'b0),
                    .ADR13(read_at[8]), .ADR12(read_at[7]), .ADR11(read_at[6]), .ADR10(read_at[5]),
                    .ADR9(read_at[4]), .ADR8(read_at[3]), .ADR7(read_at[2]), .ADR6(read_at[1]),
                    .ADR5(read_at[0]), .ADR4(1'b0), .ADR3(1'b0), .ADR2(1'b0), .ADR1(1'b0),
                    .ADR0(1'b0), .CER(1'b1), .OCER(1'b1), .CLKR(clk), .CSR2(1'b0), .CSR1(1'b0),
                    .CSR0(1'b0), .RST(1'b0),
                    .DO35(unused[3]), .DO34(unused[2]), .DO33(unused[1]), .DO32(unused[0]),
                    .DO31(rd_data[32*g+31]), .DO30(rd_data[32*g+30]), .DO29(rd_data[32*g+29]),
                    .DO28(rd_data[32*g+28]), .DO27(rd_data[32*g+27]), .DO26(rd_data[32*g+26]),
                    .DO25(rd_data[32*g+25]), .DO24(rd_data[32*g+24]), .DO23(rd_data[32*g+23]),
                    .DO22(rd_data[32*g+22]), .DO21(rd_data[32*g+21]), .DO20(rd_data[32*g+20]),
                    .DO19(rd_data[32*g+19]), .DO18(rd_data[32*g+18]), .DO17(rd_data[32*g+17]),
                    .DO16(rd_data[32*g+16]), .DO15(rd_data[32*g+15]), .DO14(rd_data[32*g+14]),
                    .DO13(rd_data[32*g+13]), .DO12(rd_data[32*g+12]), .DO11(rd_data[32*g+11]),
                    .DO10(rd_data[32*g+10]), .DO9(rd_data[32*g+9]), .DO8(rd_data[32*g+8]),
                    .DO7(rd_data[32*g+7]), .DO6(rd_data[32*g+6]), .DO5(rd_data[32*g+5]),
                    .DO4(rd_data[32*g+4]), .DO3(rd_data[32*g+3]), .DO2(rd_data[32*g+2]),
                    .DO1(rd_data[32*g+1]), .DO0(rd_data[32*g+0])
                );
            end
        end else if (BLOCK != 0) begin : g_deep
            (* ram_style = "block", no_rw_check *)
            reg [32*WORDS-1:0] rows [0:(1 << ADDR_W)-1];
            reg [32*WORDS-1:0] read, read2;
            integer i;
            initial $readmemh(INIT, rows);
            always @(posedge clk) begin
                for (i = 0; i < WORDS; i = i + 1)
                    if (wr_mask[i]) rows[wr_row][32*i +: 32] <= wr_data;
                read  <= rows[rd_row];
                read2 <= read;
            end
            assign rd_data = read2;
        end else begin : g_distributed
            (* ram_style = "distributed", no_rw_check *)
            reg [32*WORDS-1:0] rows [0:(1 << ADDR_W)-1];
            reg [32*WORDS-1:0] read, read2;
            integer i;
            initial $readmemh(INIT, rows);
            always @(posedge clk) begin
                for (i = 0; i < WORDS; i = i + 1)
                    if (wr_mask[i]) rows[wr_row][32*i +: 32] <= wr_data;
                read  <= rows[rd_row];
                read2 <= read;
            end
            assign rd_data = read2;
        end
    endgenerate
endmodule
