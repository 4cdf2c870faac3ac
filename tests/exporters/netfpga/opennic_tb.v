// SPDX-License-Identifier: Apache-2.0
// The user box of OpenNIC under random pauses. A beat is {last, src, size, keep, data}.
`timescale 1ns / 1ps
module opennic_tb;
    localparam BEATS = `BEATS;
    localparam W     = 1 + 16 + 16 + 64 + 512;
    reg [W-1:0] sent [0:BEATS-1];
    reg [W-1:0] due [0:BEATS-1];
    reg bus_clk = 1'b0, clk = 1'b0, mod_rstn = 1'b0;
    always #4 bus_clk = !bus_clk;
    always #2 clk = !clk;
    wire running;
    wire [W-1:0] m_beat [0:1];
    wire [15:0]  m_dst [0:1];
    `define BASE 32'h0020_0000
    `define EARLY 1'b0  // the reset ends before mod_rst_done
    `include "shell_tb.vh"
    task start;
        begin
            mod_rstn = 1'b1;
            wait (running);
        end
    endtask
    always @(posedge clk) begin
        if (m_valid[0] && m_dst[0] != 16'h1) fail("destination", back[0]);
        if (m_valid[1] && m_dst[1] != 16'h40) fail("destination", back[1]);
    end

    // From the port and from the host: the same packets
    wire [W-1:0] s_beat [0:1];
    assign s_beat[0] = sent[at[0]];
    assign s_beat[1] = sent[at[1]];

    n3ic_opennic box (
        .axil_aclk(bus_clk), .axis_aclk(clk), .mod_rstn(mod_rstn), .mod_rst_done(running),
        .s_axil_awvalid(awvalid), .s_axil_awaddr(address), .s_axil_awready(awready),
        .s_axil_wvalid(wvalid), .s_axil_wdata(32'd1), .s_axil_wready(wready),
        .s_axil_bvalid(bvalid), .s_axil_bresp(bresp), .s_axil_bready(1'b1),
        .s_axil_arvalid(arvalid), .s_axil_araddr(address), .s_axil_arready(arready),
        .s_axil_rvalid(rvalid), .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rready(1'b1),
        .s_axis_adap_rx_250mhz_tvalid(s_valid[0]), .s_axis_adap_rx_250mhz_tdata(s_beat[0][511:0]),
        .s_axis_adap_rx_250mhz_tkeep(s_beat[0][575:512]), .s_axis_adap_rx_250mhz_tlast(s_beat[0][W-1]),
        .s_axis_adap_rx_250mhz_tuser_size(s_beat[0][591:576]),
        .s_axis_adap_rx_250mhz_tuser_src(s_beat[0][607:592]),
        .s_axis_adap_rx_250mhz_tuser_dst(16'd0), .s_axis_adap_rx_250mhz_tready(s_ready[0]),
        .m_axis_qdma_c2h_tvalid(m_valid[0]), .m_axis_qdma_c2h_tdata(m_beat[0][511:0]),
        .m_axis_qdma_c2h_tkeep(m_beat[0][575:512]), .m_axis_qdma_c2h_tlast(m_beat[0][W-1]),
        .m_axis_qdma_c2h_tuser_size(m_beat[0][591:576]),
        .m_axis_qdma_c2h_tuser_src(m_beat[0][607:592]),
        .m_axis_qdma_c2h_tuser_dst(m_dst[0]), .m_axis_qdma_c2h_tready(m_ready[0]),
        .s_axis_qdma_h2c_tvalid(s_valid[1]), .s_axis_qdma_h2c_tdata(s_beat[1][511:0]),
        .s_axis_qdma_h2c_tkeep(s_beat[1][575:512]), .s_axis_qdma_h2c_tlast(s_beat[1][W-1]),
        .s_axis_qdma_h2c_tuser_size(s_beat[1][591:576]),
        .s_axis_qdma_h2c_tuser_src(s_beat[1][607:592]),
        .s_axis_qdma_h2c_tuser_dst(16'd0), .s_axis_qdma_h2c_tready(s_ready[1]),
        .m_axis_adap_tx_250mhz_tvalid(m_valid[1]), .m_axis_adap_tx_250mhz_tdata(m_beat[1][511:0]),
        .m_axis_adap_tx_250mhz_tkeep(m_beat[1][575:512]), .m_axis_adap_tx_250mhz_tlast(m_beat[1][W-1]),
        .m_axis_adap_tx_250mhz_tuser_size(m_beat[1][591:576]),
        .m_axis_adap_tx_250mhz_tuser_src(m_beat[1][607:592]),
        .m_axis_adap_tx_250mhz_tuser_dst(m_dst[1]), .m_axis_adap_tx_250mhz_tready(m_ready[1])
    );
endmodule
