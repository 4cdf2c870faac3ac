// SPDX-License-Identifier: Apache-2.0
// A core between shift registers. Place and route then needs three pins, and no path to a pin is
// critical: the result is the highest clock of the core itself.
module n3ic_fmax #(
    parameter N_IN      = 256,
    parameter N_CLASSES = 2,
    parameter CLASS_W   = 1,
    parameter SCORE_W   = 6,
    parameter WR_AW     = 1,
    parameter WR_DW     = 1
) (
    input  wire clk,
    input  wire serial_in,
    output reg  serial_out
);
    localparam IN_W  = N_IN + 3 + WR_AW + WR_DW + 2;
`ifdef N3IC_SHUNTING
    localparam OUT_W = 3 + CLASS_W + SCORE_W * N_CLASSES + SCORE_W + 2;
`else
    localparam OUT_W = 3 + CLASS_W + SCORE_W * N_CLASSES + SCORE_W + 1;
`endif

    reg  [IN_W-1:0]  in_shift;
    reg  [OUT_W-1:0] out_shift;
    wire [OUT_W-1:0] result;
    always @(posedge clk) begin
        in_shift   <= {in_shift[IN_W-2:0], serial_in};
        out_shift  <= in_shift[0] ? result : {out_shift[OUT_W-2:0], 1'b0};
        serial_out <= out_shift[OUT_W-1];
    end

    n3ic_core #(.TAG_W(1)) core (
        .clk(clk),
        .rst(in_shift[0]),
        .in_valid(in_shift[1]),
        .in_tag(in_shift[2]),
        .in_bits(in_shift[N_IN+2:3]),
`ifdef N3IC_WRITE_PORT
        .wr_en(in_shift[N_IN+3]),
        .wr_swap(in_shift[N_IN+4]),
        .wr_addr(in_shift[N_IN+5+:WR_AW]),
        .wr_data(in_shift[N_IN+WR_AW+5+:WR_DW]),
        .wr_busy(result[OUT_W-1]),
`endif
`ifdef N3IC_SHUNTING
        .out_shunt(result[OUT_W-2]),
`endif
        .in_ready(result[0]),
        .out_valid(result[1]),
        .out_tag(result[2]),
        .out_class(result[3+:CLASS_W]),
        .out_scores(result[CLASS_W+3+:SCORE_W*N_CLASSES]),
        .out_margin(result[SCORE_W*N_CLASSES+CLASS_W+3+:SCORE_W])
    );
`ifndef N3IC_WRITE_PORT
    assign result[OUT_W-1] = 1'b0;
`endif
endmodule
