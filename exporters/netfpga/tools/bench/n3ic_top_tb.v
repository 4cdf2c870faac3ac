// SPDX-License-Identifier: Apache-2.0
// Drives the whole card, n3ic_top, with packets from a file, and writes its output. Sender and
// receiver pause at random, and the receiver stalls once until the card is full.
//
// +in=FILE: a beat is hexadecimal words: marker that it waits for, clocks before it, last, lowest
//   word of tuser, keep, then the 32-bit words of its data, the highest first.
// +stall=N: the receiver stalls after N packets.
// +out=FILE: lines LAST KEEP USER DATA, one per beat.
// +side=FILE: inputs of the side channel, 32-bit words, the highest of an input first.
// +write=FILE: operations of the write port, lines of OPERATION ADDRESS DATA:
//   0 write a word, 1 swap the banks, 2 wait until ADDRESS packets were sent, 3 reach the next
//   marker.
`timescale 1ns / 1ps
module n3ic_top_tb #(
    parameter DATA_W = 256, // bits of a beat
    parameter SIDE_W = 32,
    parameter WR_AW  = 1,
    parameter IDLE   = 300000 // clocks without a packet after which the card hangs
`ifdef VERILATOR
) (
    input wire clk
);
`else
);
    reg clk = 1'b0;
    always #2.5 clk = !clk;
`endif
    localparam SIDE_WORDS = (SIDE_W + 31) / 32;
    integer in_file, out_file, side_file, write_file, scanned, w;
    integer clock, idle, sent, received, stall, gap, marker, after_swap, stall_at;
    reg [8*1024-1:0] in_name, out_name, side_name, write_name;
    reg [31:0]  random, word, in_marker, in_gap, in_last, in_user, user;
    reg [DATA_W-1:0]   in_data, data;
    reg [DATA_W/8-1:0] in_keep, keep;
    reg         resetn, last, valid, have, more, out_ready;
    wire        in_ready, out_valid, out_last;
    wire [DATA_W-1:0]   out_data;
    wire [DATA_W/8-1:0] out_keep;
    wire [127:0]        out_user;

    reg [SIDE_W-1:0]        side_data;
    reg [32*SIDE_WORDS-1:0] side_scan;
    reg                     side_valid, side_more;
    wire                    side_ready;
    reg [31:0]      operation, address, content;
    reg             wr_have, wr_more, wr_en, wr_swap;
    reg [WR_AW-1:0] wr_addr;
    reg [31:0]      wr_data;
    wire            wr_busy;
`ifndef N3IC_WRITE_PORT
    assign wr_busy = 1'b0;
`endif
`ifndef N3IC_SIDE
    assign side_ready = 1'b0;
`endif

    n3ic_top card (
`ifdef N3IC_SIDE
        .s_side_tdata(side_data), .s_side_tvalid(side_valid), .s_side_tready(side_ready),
`endif
`ifdef N3IC_WRITE_PORT
        .wr_en(wr_en), .wr_addr(wr_addr), .wr_data(wr_data), .wr_swap(wr_swap), .wr_busy(wr_busy),
`endif
        .axis_aclk(clk), .axis_resetn(resetn),
        // Every other packet was shunted by a core before this one.
        .s_axis_tdata(data), .s_axis_tkeep(keep),
        .s_axis_tuser({47'd0, user[0], 32'd0, 16'hffff, user}),
        .s_axis_tvalid(valid), .s_axis_tready(in_ready), .s_axis_tlast(last),
        .m_axis_tdata(out_data), .m_axis_tkeep(out_keep), .m_axis_tuser(out_user),
        .m_axis_tvalid(out_valid), .m_axis_tready(out_ready), .m_axis_tlast(out_last)
    );

    initial begin
        if (!$value$plusargs("in=%s", in_name)) $display("+in=FILE is missing");
        if (!$value$plusargs("out=%s", out_name)) $display("+out=FILE is missing");
        if (!$value$plusargs("side=%s", side_name)) $display("+side=FILE is missing");
        if (!$value$plusargs("write=%s", write_name)) $display("+write=FILE is missing");
        if (!$value$plusargs("stall=%d", stall_at)) stall_at = -1;
        in_file    = $fopen(in_name, "r");
        out_file   = $fopen(out_name, "w");
        side_file  = $fopen(side_name, "r");
        write_file = $fopen(write_name, "r");
        if (in_file == 0 || out_file == 0 || side_file == 0 || write_file == 0) begin
            $display("cannot open the packets, the side inputs, the writes or the results");
            $finish;
        end
        clock = 0;
        idle = 0;
        sent = 0;
        received = 0;
        stall = 0;
        gap = 0;
        marker = 0;
        after_swap = 0;
        random = 32'h2545f491;
        resetn = 1'b0;
        valid = 1'b0;
        have = 1'b0;
        more = 1'b1;
        out_ready = 1'b0;
        side_valid = 1'b0;
        side_more = 1'b1;
        wr_have = 1'b0;
        wr_more = 1'b1;
        wr_en = 1'b0;
        wr_swap = 1'b0;
    end

    always @(posedge clk) begin
        clock  = clock + 1;
        resetn <= clock > 40;
        random = random ^ (random << 13);
        random = random ^ (random >> 17);
        random = random ^ (random << 5);
        idle   = idle + 1;
        if (clock > 48) begin
            // --- packets come ---------------------------------------------------------------
            if (valid && in_ready && last) sent = sent + 1;
            if (!valid || in_ready) begin
                valid <= 1'b0;
                if (!have && more) begin
                    scanned = $fscanf(in_file, "%h %h %h %h %h", in_marker, in_gap, in_last,
                                      in_user, in_keep);
                    for (w = DATA_W / 32 - 1; w >= 0 && scanned > 0; w = w - 1) begin
                        scanned = $fscanf(in_file, "%h", word);
                        in_data[32*w +: 32] = word;
                    end
                    have = scanned == 1;
                    more = have;
                    gap  = in_gap;
                end
                if (have && gap > 0) gap = gap - 1;
                else if (have && marker >= in_marker) begin
                    data  <= in_data;
                    keep  <= in_keep;
                    user  <= in_user;
                    last  <= in_last[0];
                    valid <= 1'b1;
                    have  = 1'b0;
                    idle  = 0;
                end
            end
            // --- and leave ------------------------------------------------------------------
            if (out_valid && out_ready) begin
                $fwrite(out_file, "%h %h %h %h\n", out_last, out_keep, out_user, out_data);
                if (out_last) received = received + 1;
                if (out_last && received == stall_at) stall = 1200;
                idle = 0;
            end
            if (stall > 0) begin
                stall = stall - 1;
                idle  = 0;
            end
            // Sixteen packets without a pause, sixteen with.
            out_ready <= stall == 0 && (!received[4] || random[1:0] != 2'd0);
            // --- side channel ---------------------------------------------------------------
            if (!side_valid || side_ready) begin
                side_valid <= 1'b0;
                if (side_more && random[4]) begin
                    scanned = 1;
                    for (w = SIDE_WORDS - 1; w >= 0 && scanned == 1; w = w - 1) begin
                        scanned = $fscanf(side_file, "%h", word);
                        side_scan[32*w +: 32] = word;
                    end
                    side_data  <= side_scan[SIDE_W-1:0];
                    side_valid <= scanned == 1;
                    side_more  = scanned == 1;
                end
            end
            // --- write port -----------------------------------------------------------------
            wr_en   <= 1'b0;
            wr_swap <= 1'b0;
            if (!wr_have && wr_more) begin
                wr_have = $fscanf(write_file, "%h %h %h", operation, address, content) == 3;
                wr_more = wr_have;
            end
            if (after_swap > 0 && (after_swap < 3 || wr_busy)) begin
                // Writes while inferences of the old bank are under way must be ignored.
                wr_en      <= after_swap > 1;
                wr_swap    <= after_swap == 2;
                wr_data    <= random;
                after_swap = (after_swap < 3) ? after_swap + 1 : 3;
            end else begin
                after_swap = 0;
                if (wr_have && !wr_busy) begin
                    if (operation == 0) begin
                        wr_en   <= 1'b1;
                        wr_addr <= address[WR_AW-1:0];
                        wr_data <= content;
                    end
                    if (operation == 1) begin
                        wr_swap    <= 1'b1;
                        after_swap = 1;
                    end
                    if (operation == 3) marker = marker + 1;
                    if (operation != 2 || sent >= address) begin
                        wr_have = 1'b0;
                        idle    = 0;
                    end
                end
            end
            if (!more && !have && !valid && received == sent && !wr_more && !wr_have
                || idle == IDLE) begin
                $fclose(out_file);
                $finish;
            end
        end
    end
endmodule
