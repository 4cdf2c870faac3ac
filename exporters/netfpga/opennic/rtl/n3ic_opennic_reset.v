// SPDX-License-Identifier: Apache-2.0
// The reset of a user box: the shell asks for it by mod_rstn, in the clock of its registers, and
// waits for mod_rst_done. It is held for 64 clocks, and 63 more pass until both clocks have left it.
module n3ic_opennic_reset (
    input  wire axil_aclk,
    input  wire axis_aclk,
    input  wire mod_rstn,
    output wire mod_rst_done,
    output reg  axil_rst,
    output wire axis_rst
);
    reg [6:0] held = 7'd0;
    (* ASYNC_REG = "TRUE" *) reg [1:0] there = 2'b11;
    assign mod_rst_done = &held;
    assign axis_rst     = there[1];
    initial axil_rst = 1'b1;
    always @(posedge axil_aclk) begin
        if (!mod_rstn) held <= 7'd0;
        else if (!mod_rst_done) held <= held + 7'd1;
        axil_rst <= !mod_rstn || !held[6];
    end
    always @(posedge axis_aclk) there <= {there[0], axil_rst};
endmodule
