// SPDX-License-Identifier: Apache-2.0
// From beats of 64 bytes to beats of 32, low bytes first. An upper half without bytes makes no beat.
module n3ic_axis_narrow #(
    parameter USER_W = 128
) (
    input  wire              clk,
    input  wire              rst,
    input  wire [511:0]      s_axis_tdata,
    input  wire [63:0]       s_axis_tkeep,
    input  wire [USER_W-1:0] s_axis_tuser,
    input  wire              s_axis_tvalid,
    output wire              s_axis_tready,
    input  wire              s_axis_tlast,
    output wire [255:0]      m_axis_tdata,
    output wire [31:0]       m_axis_tkeep,
    output wire [USER_W-1:0] m_axis_tuser,
    output wire              m_axis_tvalid,
    input  wire              m_axis_tready,
    output wire              m_axis_tlast
);
    reg [511:0]      data;
    reg [63:0]       keep;
    reg [USER_W-1:0] user;
    reg              held, last, upper;  // upper: the low half has left
    wire short  = last && keep[63:32] == 32'd0;
    wire leaves = held && m_axis_tready;
    wire ends   = leaves && (upper || short);
    assign s_axis_tready = !held || ends;
    assign m_axis_tdata  = upper ? data[511:256] : data[255:0];
    assign m_axis_tkeep  = upper ? keep[63:32] : keep[31:0];
    assign m_axis_tuser  = user;
    assign m_axis_tvalid = held;
    assign m_axis_tlast  = last && (upper || short);
    always @(posedge clk) begin
        if (s_axis_tready) begin
            held <= s_axis_tvalid;
            data <= s_axis_tdata;
            keep <= s_axis_tkeep;
            user <= s_axis_tuser;
            last <= s_axis_tlast;
        end
        if (leaves) upper <= !ends;
        if (rst) begin
            held  <= 1'b0;
            upper <= 1'b0;
        end
    end
endmodule
