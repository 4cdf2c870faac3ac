// SPDX-License-Identifier: Apache-2.0
// The user box of OpenNIC under random pauses. A beat is {last, src, size, keep, data}.
`timescale 1ns / 1ps
module opennic_tb;
    localparam BEATS = `BEATS;
    localparam W     = 1 + 16 + 16 + 64 + 512;
    reg [W-1:0] sent [0:BEATS-1];
    reg [W-1:0] due [0:BEATS-1];
    reg axil_aclk = 1'b0, axis_aclk = 1'b0, mod_rstn = 1'b0;
    always #4 axil_aclk = !axil_aclk;
    always #2 axis_aclk = !axis_aclk;
    wire done;

    // From the port and from the host: the same packets
    reg  [31:0] at [0:1], back [0:1];
    reg  [1:0]  s_valid, m_ready;
    wire [1:0]  s_ready, m_valid;
    wire [W-1:0] s_beat [0:1], m_beat [0:1];
    wire [15:0] m_dst [0:1];
    assign s_beat[0] = sent[at[0]];
    assign s_beat[1] = sent[at[1]];

    reg awvalid = 1'b0, wvalid = 1'b0, arvalid = 1'b0;
    reg [31:0] address = 32'd0;
    wire awready, wready, arready, bvalid, rvalid;
    wire [31:0] rdata;
    wire [1:0] bresp, rresp;

    n3ic_opennic box (
        .axil_aclk(axil_aclk), .axis_aclk(axis_aclk), .mod_rstn(mod_rstn), .mod_rst_done(done),
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

    task fail(input [8*24-1:0] what, input integer index);
        begin
            $display("FAIL %0s at beat %0d", what, index);
            $finish;
        end
    endtask

    // A byte counts only where tkeep has its bit.
    function same(input [W-1:0] got, input [W-1:0] wanted);
        integer b;
        begin
            same = got[W-1:512] == wanted[W-1:512];
            for (b = 0; b < 64; b = b + 1)
                if (wanted[512+b] && got[8*b +: 8] != wanted[8*b +: 8]) same = 1'b0;
        end
    endfunction

    integer p, clocks = 0, pauses = `PAUSES;
    always @(posedge axis_aclk)
        if (!done) begin
            for (p = 0; p < 2; p = p + 1) begin
                at[p]      <= 32'd0;
                back[p]    <= 32'd0;
                s_valid[p] <= 1'b0;
                m_ready[p] <= 1'b0;
            end
        end else begin
            clocks <= clocks + 1;
            for (p = 0; p < 2; p = p + 1) begin
                m_ready[p] <= !pauses || $random % 3 != 0;
                if (s_valid[p] && s_ready[p]) begin
                    at[p]      <= at[p] + 32'd1;
                    s_valid[p] <= at[p] + 32'd1 < BEATS && (!pauses || $random % 4 != 0);
                end else if (!s_valid[p])
                    s_valid[p] <= at[p] < BEATS && (!pauses || $random % 4 != 0);
                if (m_valid[p] && m_ready[p]) begin
                    if (back[p] >= BEATS) fail("a beat too many", back[p]);
                    else if (!same(m_beat[p], p == 0 ? due[back[p]] : sent[back[p]]))
                        fail(p == 0 ? "to the host" : "to the port", back[p]);
                    if (m_dst[p] != (p == 0 ? 16'h1 : 16'h40)) fail("destination", back[p]);
                    back[p] <= back[p] + 32'd1;
                end
            end
            if (clocks > 100000) fail("it stands still", back[0]);
        end

    // Signals of the bus change at falling edges.
    task read(input [31:0] where, input [31:0] wanted);
        begin
            @(negedge axil_aclk);
            address = where;
            arvalid = 1'b1;
            @(posedge axil_aclk);
            while (!arready) @(posedge axil_aclk);
            @(negedge axil_aclk);
            arvalid = 1'b0;
            while (!rvalid) @(negedge axil_aclk);
            if (rdata != wanted || rresp != 2'd0) begin
                $display("register %h is %h", where, rdata);
                fail("register", where);
            end
        end
    endtask

    initial begin
        $readmemh("sent.mem", sent);
        $readmemh("due.mem", due);
        repeat (8) @(posedge axil_aclk);
        mod_rstn = 1'b1;
        wait (done);
        read(32'h0020_0000, 32'h4e334943);
        while (back[0] < BEATS || back[1] < BEATS) @(posedge axis_aclk);
        repeat (20) @(posedge axis_aclk);
        read(32'h0020_0040, `PACKETS);
        read(32'h0020_0044, `PACKETS);
        // A write to a register that is only read is an error.
        @(negedge axil_aclk);
        address = 32'h0020_0000;
        awvalid = 1'b1;
        wvalid  = 1'b1;
        @(posedge axil_aclk);
        while (!awready) @(posedge axil_aclk);
        @(negedge axil_aclk);
        awvalid = 1'b0;
        wvalid  = 1'b0;
        while (!bvalid) @(negedge axil_aclk);
        if (bresp == 2'd0) fail("write", 0);
        $display("PASS in %0d clocks", clocks);
        $finish;
    end
endmodule
