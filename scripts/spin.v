// SPDX-License-Identifier: Apache-2.0
// A dummy task: answers a packet of one beat CLOCKS clocks later, and takes one in EVERY clocks.
module spin_CLOCKS_EVERY (
    input  wire        aclk,
    input  wire        aresetn,
    input  wire [63:0] s_axis_tdata,
    input  wire        s_axis_tvalid,
    output wire        s_axis_tready,
    input  wire        s_axis_tlast,
    output wire [63:0] m_axis_tdata,
    output wire        m_axis_tvalid,
    input  wire        m_axis_tready,
    output wire        m_axis_tlast
);
    reg  [CLOCKS-1:0] under_way;
    reg  [63:0]       data [0:CLOCKS-1];
    reg  [7:0]        rests;
    wire              step = !under_way[CLOCKS-1] || m_axis_tready;
    wire              takes = s_axis_tvalid && s_axis_tready;
    integer i;
    assign s_axis_tready = step && rests == 8'd0;
    assign m_axis_tvalid = under_way[CLOCKS-1];
    assign m_axis_tdata  = data[CLOCKS-1];
    assign m_axis_tlast  = s_axis_tlast || 1'b1;
    always @(posedge aclk) begin
        if (step) begin
            under_way <= (under_way << 1) | {{CLOCKS {1'b0}}, takes};
            data[0]   <= s_axis_tdata;
            for (i = 1; i < CLOCKS; i = i + 1) data[i] <= data[i-1];
        end
        rests <= takes ? EVERY - 1 : (rests != 8'd0) ? rests - 8'd1 : 8'd0;
        if (!aresetn) under_way <= {CLOCKS {1'b0}};
        if (!aresetn) rests <= 8'd0;
    end
endmodule
