// SPDX-License-Identifier: Apache-2.0
// Drives n3ic_card with packets and a program of its control plane, and writes its output.
//
// +in=FILE: a beat is 13 hexadecimal words: the clock before which it is not sent, last, keep, lowest
//   word of tuser, the packet's number (next word of tuser), the eight words of its data, the highest
//   first.
// +program=FILE: lines of OPERATION A B C, hexadecimal:
//   0 register A becomes B            1 register A is read: a line "r A VALUE"
//   2 wait until A packets were sent  3 wait until register A, masked with B, is C
//   4 word B is written to address A of region C[15:8], model C[7:0]
//   5 banks of that region and model are swapped    6 wait for A clocks
//   7 wait until the write port of region A is free
//   8 wait until counter B reaches the present value of counter A
//   9 A further beats are in the input (with +live=1)
//   a wait until clock A and until all beats announced are sent: a line "c CLOCK"
// +live=1: both files are pipes. The bench waits for the next operation, and reads no beat that operation
//   9 has not announced, so whoever writes the program steps the clock. Lines r and c are flushed.
// +pauses=1: the receiver pauses at random. +quiet=N: the bench ends N clocks after the last beat.
// With MEMORY, the card has an on-board memory that answers after random times.
// +out=FILE: lines
//   i CLOCK NUMBER                  the last beat of a packet was sent
//   o CLOCK LAST KEEP USER DATA     a beat left
`timescale 1ns / 1ps
module n3ic_card_tb #(
    parameter WR_AW   = 8,
    parameter REGIONS = 1
`ifdef MEMORY
    , parameter FRAME_W = 1, parameter PAGE_W = 4
`endif
`ifdef VERILATOR
) (
    input wire clk
);
`else
);
    reg clk = 1'b0;
    always #2.5 clk = !clk;
`endif
    integer in_file, out_file, program_file, scanned, w, clock, idle, quiet, sent, pauses, pause, live;
    reg [8*1024-1:0] in_name, out_name, program_name;
    reg [31:0]  random, word, far, granted, in_at, in_last, in_keep, in_user, in_number, op, a, b, c;
    reg [255:0] in_data, data;
    reg [31:0]  keep, user, number;
    reg         resetn, last, valid, have, more, out_ready, op_have, op_more, reached, expired;
    wire        in_ready, out_valid, out_last;
    wire [255:0] out_data;
    wire [31:0]  out_keep, cfg_rdata;
    wire [127:0] out_user;
    reg          cfg_wr, wr_en, wr_swap;
    reg [15:0]   cfg_addr;
    reg [31:0]   cfg_wdata, wr_data;
    reg [7:0]    wr_region, wr_model;
    reg [WR_AW-1:0]    wr_addr;
    wire [REGIONS-1:0] wr_busy;

`ifdef MEMORY
    // The memory begins with ones, which no task may see.
    localparam MEM_W = FRAME_W + PAGE_W;
    wire             mem_valid, mem_write;
    wire [MEM_W-1:0] mem_addr;
    wire [255:0]     mem_data;
    reg              mem_ready, back_valid;
    reg  [255:0]     back_data;
    reg  [255:0]     memory [0:(1 << MEM_W)-1], queue [0:255];
    reg  [7:0]       first, last_one;
    reg  [31:0]      chance;
    integer          m;
    initial begin
        for (m = 0; m < 1 << MEM_W; m = m + 1) memory[m] = {256 {1'b1}};
        mem_ready = 1'b0; back_valid = 1'b0; first = 8'd0; last_one = 8'd0; chance = 32'h1234567;
    end
    always @(posedge clk) begin
        chance = chance ^ (chance << 13);
        chance = chance ^ (chance >> 17);
        chance = chance ^ (chance << 5);
        if (mem_valid && mem_ready && mem_write) memory[mem_addr] <= mem_data;
        if (mem_valid && mem_ready && !mem_write) begin
            queue[last_one] <= memory[mem_addr];
            last_one        <= last_one + 1'b1;
        end
        mem_ready  <= chance[1:0] != 2'd0;
        back_valid <= first != last_one && chance[3:2] == 2'd0;
        back_data  <= queue[first];
        if (first != last_one && chance[3:2] == 2'd0) first <= first + 1'b1;
    end
`endif

    n3ic_card
`ifdef MEMORY
        #(.PAGE_W(PAGE_W))
`endif
    card (
`ifdef MEMORY
        .mem_valid(mem_valid), .mem_ready(mem_ready), .mem_write(mem_write), .mem_addr(mem_addr), .mem_tenant(),
        .mem_data(mem_data), .back_valid(back_valid), .back_data(back_data),
`endif
        .axis_aclk(clk), .axis_resetn(resetn), .cfg_wr(cfg_wr), .cfg_addr(cfg_addr),
        .cfg_wdata(cfg_wdata), .cfg_rdata(cfg_rdata), .wr_region(wr_region), .wr_model(wr_model),
        .wr_addr(wr_addr), .wr_data(wr_data), .wr_en(wr_en), .wr_swap(wr_swap), .wr_busy(wr_busy),
        .s_axis_tdata(data), .s_axis_tkeep(keep), .s_axis_tuser({64'd0, number, user}),
        .s_axis_tvalid(valid), .s_axis_tready(in_ready), .s_axis_tlast(last),
        .m_axis_tdata(out_data), .m_axis_tkeep(out_keep), .m_axis_tuser(out_user),
        .m_axis_tvalid(out_valid), .m_axis_tready(out_ready), .m_axis_tlast(out_last)
    );

    initial begin
        if (!$value$plusargs("in=%s", in_name)) $display("+in=FILE is missing");
        if (!$value$plusargs("out=%s", out_name)) $display("+out=FILE is missing");
        if (!$value$plusargs("program=%s", program_name)) $display("+program=FILE is missing");
        if (!$value$plusargs("pauses=%d", pauses)) pauses = 0;
        if (!$value$plusargs("quiet=%d", quiet)) quiet = 3000;
        if (!$value$plusargs("live=%d", live)) live = 0;
        in_file      = $fopen(in_name, "r");
        out_file     = $fopen(out_name, "w");
        program_file = $fopen(program_name, "r");
        if (in_file == 0 || out_file == 0 || program_file == 0) begin
            $display("cannot open the packets, the program or the results");
            $finish;
        end
        clock = 0;
        idle = 0;
        sent = 0;
        granted = live == 0 ? 32'hffffffff : 32'd0;
        pause = 0;
        random = 32'h2545f491;
        resetn = 1'b0;
        valid = 1'b0;
        have = 1'b0;
        more = 1'b1;
        out_ready = 1'b0;
        op_have = 1'b0;
        op_more = 1'b1;
        expired = 1'b0;
        cfg_wr = 1'b0;
        cfg_addr = 16'd0;
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
            if (valid && last) begin
                $fwrite(out_file, "i %0d %0d\n", clock, number);
                sent = sent + 1;
            end
            if (valid && !in_ready) $display("the card holds its input up");
            valid <= 1'b0;
            if (!have && more && granted != 0) begin
                scanned = $fscanf(in_file, "%h %h %h %h %h", in_at, in_last, in_keep, in_user,
                                  in_number);
                for (w = 7; w >= 0 && scanned > 0; w = w - 1) begin
                    scanned = $fscanf(in_file, "%h", word);
                    in_data[32*w +: 32] = word;
                end
                have = scanned == 1;
                more = have;
                granted = granted - 1;
            end
            if (have && clock >= in_at) begin
                data   <= in_data;
                keep   <= in_keep;
                user   <= in_user;
                number <= in_number;
                last   <= in_last[0];
                valid  <= 1'b1;
                have   = 1'b0;
            end
            if (have || (more && granted != 0)) idle = 0;
            // --- and leave ------------------------------------------------------------------
            if (out_valid && out_ready) begin
                $fwrite(out_file, "o %0d %h %h %h %h\n", clock, out_last, out_keep, out_user,
                        out_data);
                idle = 0;
            end
            out_ready <= pauses == 0 || random[1:0] != 2'd0;
            // --- control plane ----------------------------------------------------------------
            cfg_wr  <= 1'b0;
            wr_en   <= 1'b0;
            wr_swap <= 1'b0;
            if (!op_have && op_more) begin
                op_have = $fscanf(program_file, "%h %h %h %h", op, a, b, c) == 4;
                op_more = op_have;
                pause   = 0;
            end
            if (op_have) begin
                pause = pause + 1;
                idle  = 0;
                if (op == 0) begin
                    cfg_wr    <= 1'b1;
                    cfg_addr  <= a[15:0];
                    cfg_wdata <= b;
                end
                // A register's value is valid two clocks after its address.
                if (op == 1 || op == 3) cfg_addr <= a[15:0];
                if (op == 1 && pause == 4) $fwrite(out_file, "r %0d %h %0d\n", clock, a, cfg_rdata);
                if (op == 9) granted = granted + a;
                reached = op == 10 && clock >= a && granted == 0 && !have;
                if (reached) $fwrite(out_file, "c %0d\n", clock);
                if (reached || (op == 1 && pause == 4)) $fflush(out_file);
                if (op == 8) cfg_addr <= (pause < 4) ? a[15:0] : b[15:0];
                if (op == 8 && pause == 4) far = cfg_rdata;
                if (op == 4 || op == 5) begin
                    wr_region <= c[15:8];
                    wr_model  <= c[7:0];
                    wr_addr   <= a[WR_AW-1:0];
                    wr_data   <= b;
                    wr_en     <= op == 4;
                    wr_swap   <= op == 5;
                end
                if (op == 0 || (op == 1 && pause == 4) || (op == 2 && sent >= a)
                    || (op == 3 && pause >= 4 && (cfg_rdata & b) == c) || op == 4 || op == 5
                    || op == 9 || reached
                    || (op == 8 && pause >= 9 && $signed(cfg_rdata - far) >= 0)
                    || (op == 6 && pause >= a) || (op == 7 && pause >= 4 && !wr_busy[a]))
                    op_have = 1'b0;
                if (pause > 1000000 && op != 10) begin
                    $display("the program waits for ever: %h %h %h %h", op, a, b, c);
                    expired = 1'b1;
                end
            end
            if (((!more || granted == 0) && !have && !op_more && !op_have && idle >= quiet) || expired) begin
                $fclose(out_file);
                $finish;
            end
        end
    end
endmodule
