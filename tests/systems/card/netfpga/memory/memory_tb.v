// SPDX-License-Identifier: Apache-2.0
// Drives n3ic_card_memory in front of a memory that is full of ones, with random latencies.
// +in=FILE: lines, hexadecimal: KIND PORT TENANT WRITE ADDR DATA
//   0: register ADDR becomes DATA, once all is quiet    1: a request, once the port is free
//   2: register ADDR is read, once all is quiet, and no page is given or taken: a line "r VALUE"
// +out=FILE: lines "a PORT FAULT DATA" of answers, "m TENANT WRITE ADDR DATA" of requests to the
//   memory, "l PORT" where a port sees data that is no answer to it.
`timescale 1ns / 1ps
module memory_tb #(
    parameter PORTS = 3,
    parameter TENANTS = 3,
    parameter PAGE_W = 2,
    parameter PAGES = 7,
    parameter FRAME_W = 3,
    parameter VIRTUAL = 5,
    parameter INDEX_W = 3,
    parameter [16*TENANTS-1:0] BASES = 48'h0004_0002_0000,
    parameter [16*TENANTS-1:0] LIMITS = 48'h0001_0002_0002
);
    reg clk = 1'b0;
    always #2.5 clk = !clk;
    reg  [8*1024-1:0] in_name, out_name;
    integer in_file, out_file, scanned, p, quiet, clock;
    reg  [31:0] op, port, tenant, write, addr;
    reg  [255:0] data;
    reg  have, rst, cfg_wr, reading;
    reg  [15:0] cfg_addr;
    reg  [31:0] cfg_wdata;
    wire [31:0] cfg_rdata;
    reg  [PORTS-1:0] asks, inside, writes;
    reg  [2*PORTS-1:0] tenants;
    reg  [32*PORTS-1:0] addrs;
    reg  [256*PORTS-1:0] words;
    wire [PORTS-1:0] taken, answers, faults;
    wire [256*PORTS-1:0] reads;
    wire mem_valid, mem_write;
    wire [FRAME_W+PAGE_W-1:0] mem_addr;
    wire [1:0] mem_tenant;
    wire [255:0] mem_data;
    reg  mem_ready, back_valid;
    reg  [255:0] back_data;
    reg  [255:0] memory [0:(1 << (FRAME_W + PAGE_W))-1];
    reg  [255:0] queue [0:15];
    reg  [3:0]   head, tail;
    n3ic_card_memory #(
        .PORTS(PORTS), .TENANTS(TENANTS), .QUEUE_W(2), .PAGE_W(PAGE_W), .PAGES(PAGES), .FRAME_W(FRAME_W),
        .VIRTUAL(VIRTUAL), .INDEX_W(INDEX_W), .BASES(BASES), .LIMITS(LIMITS)
    ) dut (
        .clk(clk), .rst(rst), .cfg_wr(cfg_wr), .cfg_addr(cfg_addr), .cfg_wdata(cfg_wdata), .cfg_rdata(cfg_rdata),
        .asks(asks), .taken(taken), .tenants(tenants), .writes(writes), .addrs(addrs), .words(words),
        .answers(answers), .faults(faults), .reads(reads), .mem_valid(mem_valid), .mem_ready(mem_ready),
        .mem_write(mem_write), .mem_addr(mem_addr), .mem_tenant(mem_tenant), .mem_data(mem_data),
        .back_valid(back_valid), .back_data(back_data)
    );
    task next;
        begin
            scanned = $fscanf(in_file, "%h %h %h %h %h %h", op, port, tenant, write, addr, data);
            have = scanned == 6;
        end
    endtask
    initial begin
        if (!$value$plusargs("in=%s", in_name)) $finish;
        if (!$value$plusargs("out=%s", out_name)) $finish;
        in_file  = $fopen(in_name, "r");
        out_file = $fopen(out_name, "w");
        for (p = 0; p < 1 << (FRAME_W + PAGE_W); p = p + 1) memory[p] = {256 {1'b1}};
        rst = 1; cfg_wr = 0; reading = 0; cfg_addr = 16'h5000; asks = 0; inside = 0; writes = 0; tenants = 0; addrs = 0;
        words = 0; mem_ready = 0; back_valid = 0; back_data = 0; head = 0; tail = 0; quiet = 0; clock = 0;
        next;
        repeat (4) @(negedge clk);
        rst = 0;
        while ((have || quiet < 20) && clock < 100000) begin
            // Decides at the falling edge, so that the rising edge sees settled values.
            @(negedge clk);
            clock  = clock + 1;
            asks   = asks & ~taken_before;
            cfg_wr = 0;
            for (p = 0; p < PORTS; p = p + 1) begin
                if (answers[p]) begin
                    $fdisplay(out_file, "a %0d %0d %h", p, faults[p], reads[256*p +: 256]);
                    inside[p] = 0;
                end else if (reads[256*p +: 256] !== 256'd0) $fdisplay(out_file, "l %0d", p);
            end
            quiet = (inside == 0 && (!cfg_rdata[0] || cfg_addr != 16'h5000)) ? quiet + 1 : 0;
            if (have && op == 1 && !inside[port]) begin
                asks[port] = 1; inside[port] = 1; writes[port] = write[0];
                tenants[2*port +: 2] = tenant[1:0];
                addrs[32*port +: 32] = addr;
                words[256*port +: 256] = data;
                quiet = 0;
                next;
            end else if (have && op == 0 && quiet > 3) begin
                cfg_wr = 1; cfg_addr = addr[15:0]; cfg_wdata = data[31:0]; quiet = 0;
                next;
            end else if (have && op == 2 && quiet > 3 && !reading) begin
                cfg_addr = addr[15:0]; reading = 1; quiet = 0;
            end else if (have && op == 2 && quiet > 3) begin
                $fdisplay(out_file, "r %h", cfg_rdata);
                cfg_addr = 16'h5000; reading = 0; quiet = 0;
                next;
            end
            // The memory: requests are served in their order, reads are answered later.
            back_valid = 0;
            if (head != tail && $random % 3 == 0) begin
                back_valid = 1; back_data = queue[head]; head = head + 1;
            end else back_data = {8 {$random}};
            mem_ready = $random;
            #1;
            if (mem_valid && mem_ready) begin
                $fdisplay(out_file, "m %0d %0d %h %h", mem_tenant, mem_write, mem_addr, mem_data);
                if (mem_write) memory[mem_addr] = mem_data;
                else begin
                    queue[tail] = memory[mem_addr]; tail = tail + 1;
                end
            end
        end
        $finish;
    end
    reg [PORTS-1:0] taken_before;
    always @(posedge clk) taken_before <= taken & asks;
endmodule
