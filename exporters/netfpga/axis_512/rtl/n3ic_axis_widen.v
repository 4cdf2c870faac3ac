// SPDX-License-Identifier: Apache-2.0
// From beats of 32 bytes to beats of 64, low bytes first. A packet begins a beat; what it does not
// fill is 0. The sideband is that of its first 32 bytes.
module n3ic_axis_widen #(
    parameter USER_W = 128
) (
    input  wire              clk,
    input  wire              rst,
    input  wire [255:0]      s_axis_tdata,
    input  wire [31:0]       s_axis_tkeep,
    input  wire [USER_W-1:0] s_axis_tuser,
    input  wire              s_axis_tvalid,
    output wire              s_axis_tready,
    input  wire              s_axis_tlast,
    output reg  [511:0]      m_axis_tdata,
    output reg  [63:0]       m_axis_tkeep,
    output reg  [USER_W-1:0] m_axis_tuser,
    output reg               m_axis_tvalid,
    input  wire              m_axis_tready,
    output reg               m_axis_tlast
);
    reg upper;  // the low half has come
    assign s_axis_tready = !m_axis_tvalid || m_axis_tready;
    always @(posedge clk) begin
        if (s_axis_tready) begin
            m_axis_tvalid <= s_axis_tvalid && (upper || s_axis_tlast);
            if (s_axis_tvalid) begin
                upper        <= !upper && !s_axis_tlast;
                m_axis_tlast <= s_axis_tlast;
                if (upper) begin
                    m_axis_tdata[511:256] <= s_axis_tdata;
                    m_axis_tkeep[63:32]   <= s_axis_tkeep;
                end else begin
                    m_axis_tdata <= {256'd0, s_axis_tdata};
                    m_axis_tkeep <= {32'd0, s_axis_tkeep};
                    m_axis_tuser <= s_axis_tuser;
                end
            end
        end
        if (rst) begin
            m_axis_tvalid <= 1'b0;
            upper         <= 1'b0;
        end
    end
endmodule
