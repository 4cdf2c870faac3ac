// SPDX-License-Identifier: Apache-2.0
// The application block of Corundum with two interfaces, under random pauses. A beat is
// {last, tuser, tdest, tid, keep, data}. Interface 0 has the network, interface 1 has none; every
// other input is noise, and every other output is compared with what it must be.
`timescale 1ns / 1ps
module corundum_tb;
    localparam BEATS = `BEATS;
    localparam W     = 1 + 97 + 8 + 1 + 64 + 512;
    localparam IF_COUNT = 2, PORT_COUNT = 2, PTP_TS_WIDTH = 96, PTP_PEROUT_COUNT = 1, TX_TAG_WIDTH = 16;
    localparam AXIS_DATA_WIDTH = 512, AXIS_KEEP_WIDTH = 64, AXIS_TX_USER_WIDTH = 17, AXIS_RX_USER_WIDTH = 97;
    localparam AXIS_SYNC_DATA_WIDTH = 512, AXIS_SYNC_KEEP_WIDTH = 64;
    localparam AXIS_SYNC_TX_USER_WIDTH = 17, AXIS_SYNC_RX_USER_WIDTH = 97;
    localparam AXIS_IF_DATA_WIDTH = 512, AXIS_IF_KEEP_WIDTH = 64, AXIS_IF_TX_ID_WIDTH = 12;
    localparam AXIS_IF_TX_DEST_WIDTH = 4, AXIS_IF_TX_USER_WIDTH = 17;
    localparam AXIL_CTRL_DATA_WIDTH = 32, AXIL_CTRL_ADDR_WIDTH = 16, AXIL_CTRL_STRB_WIDTH = 4;
    localparam DMA_ADDR_WIDTH = 64, DMA_IMM_WIDTH = 32, DMA_LEN_WIDTH = 16, DMA_TAG_WIDTH = 16;
    localparam RAM_SEL_WIDTH = 4, RAM_ADDR_WIDTH = 16, RAM_SEG_COUNT = 2, RAM_SEG_DATA_WIDTH = 256;
    localparam RAM_SEG_BE_WIDTH = 32, RAM_SEG_ADDR_WIDTH = 10;
    localparam DDR_CH = 1, AXI_DDR_DATA_WIDTH = 256, AXI_DDR_ADDR_WIDTH = 32, AXI_DDR_STRB_WIDTH = 32;
    localparam AXI_DDR_ID_WIDTH = 8, AXI_DDR_AWUSER_WIDTH = 1, AXI_DDR_WUSER_WIDTH = 1, AXI_DDR_BUSER_WIDTH = 1;
    localparam AXI_DDR_ARUSER_WIDTH = 1, AXI_DDR_RUSER_WIDTH = 1;
    localparam HBM_CH = 1, AXI_HBM_DATA_WIDTH = 256, AXI_HBM_ADDR_WIDTH = 32, AXI_HBM_STRB_WIDTH = 32;
    localparam AXI_HBM_ID_WIDTH = 8, AXI_HBM_AWUSER_WIDTH = 1, AXI_HBM_WUSER_WIDTH = 1, AXI_HBM_BUSER_WIDTH = 1;
    localparam AXI_HBM_ARUSER_WIDTH = 1, AXI_HBM_RUSER_WIDTH = 1;
    localparam STAT_INC_WIDTH = 24, STAT_ID_WIDTH = 12, APP_GPIO_IN_WIDTH = 32, APP_GPIO_OUT_WIDTH = 32;

    reg [W-1:0] sent [0:BEATS-1];
    reg [W-1:0] due [0:BEATS-1];
    reg clk = 1'b0, rst = 1'b1;
    always #2 clk = !clk;
    wire bus_clk = clk, running = !rst;
    wire [W-1:0] m_beat [0:1];
    `define BASE 32'd0
    `define EARLY 1'b1
    `include "shell_tb.vh"
    task start;
        #1 rst = 1'b0;
    endtask

    // Received packets: the same on both interfaces
    wire [1:0]  s_axis_if_rx_tvalid = s_valid, m_axis_if_rx_tready = m_ready;
    wire [1:0]  s_axis_if_rx_tready, m_axis_if_rx_tvalid, s_axis_if_rx_tlast, m_axis_if_rx_tlast;
    assign s_ready = s_axis_if_rx_tready;
    assign m_valid = m_axis_if_rx_tvalid;
    wire [1023:0] s_axis_if_rx_tdata, m_axis_if_rx_tdata;
    wire [127:0]  s_axis_if_rx_tkeep, m_axis_if_rx_tkeep;
    wire [1:0]    s_axis_if_rx_tid, m_axis_if_rx_tid;
    wire [15:0]   s_axis_if_rx_tdest, m_axis_if_rx_tdest;
    wire [193:0]  s_axis_if_rx_tuser, m_axis_if_rx_tuser;
    genvar g;
    generate
        for (g = 0; g < 2; g = g + 1) begin : interfaces
            wire [W-1:0] s_beat = sent[at[g]];
            assign {s_axis_if_rx_tlast[g], s_axis_if_rx_tuser[97*g +: 97], s_axis_if_rx_tdest[8*g +: 8],
                    s_axis_if_rx_tid[g], s_axis_if_rx_tkeep[64*g +: 64], s_axis_if_rx_tdata[512*g +: 512]} = s_beat;
            assign m_beat[g] = {
                m_axis_if_rx_tlast[g], m_axis_if_rx_tuser[97*g +: 97], m_axis_if_rx_tdest[8*g +: 8],
                m_axis_if_rx_tid[g], m_axis_if_rx_tkeep[64*g +: 64], m_axis_if_rx_tdata[512*g +: 512]};
        end
    endgenerate

    // Registers
    wire s_axil_app_ctrl_awvalid = awvalid, s_axil_app_ctrl_wvalid = wvalid, s_axil_app_ctrl_arvalid = arvalid;
    wire [15:0] s_axil_app_ctrl_awaddr = address[15:0], s_axil_app_ctrl_araddr = address[15:0];
    wire [2:0]  s_axil_app_ctrl_awprot = 3'd0, s_axil_app_ctrl_arprot = 3'd0;
    wire [31:0] s_axil_app_ctrl_wdata = 32'd1;
    wire [31:0] s_axil_app_ctrl_rdata;
    wire [3:0]  s_axil_app_ctrl_wstrb = 4'hf;
    wire s_axil_app_ctrl_bready = 1'b1, s_axil_app_ctrl_rready = 1'b1;
    wire s_axil_app_ctrl_awready, s_axil_app_ctrl_wready, s_axil_app_ctrl_arready;
    wire s_axil_app_ctrl_bvalid, s_axil_app_ctrl_rvalid;
    wire [1:0] s_axil_app_ctrl_bresp, s_axil_app_ctrl_rresp;
    assign {awready, wready, arready} = {s_axil_app_ctrl_awready, s_axil_app_ctrl_wready, s_axil_app_ctrl_arready};
    assign {bvalid, bresp} = {s_axil_app_ctrl_bvalid, s_axil_app_ctrl_bresp};
    assign {rvalid, rresp, rdata} = {s_axil_app_ctrl_rvalid, s_axil_app_ctrl_rresp, s_axil_app_ctrl_rdata};

    `include "declared.vh"
    mqnic_app_block #(.IF_COUNT(2)) block (
    `include "connected.vh"
    );

    reg [1535:0] noise = 1536'd1;
    always @(posedge clk) begin
        noise <= {noise[1503:0], noise[1535:1504] ^ $random};
        `include "noisy.vh"
    end
    always @(negedge clk) if (!rst && clocks > 0) begin
        `include "checks.vh"
    end
endmodule
