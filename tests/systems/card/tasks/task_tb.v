// SPDX-License-Identifier: Apache-2.0
// Drives one packet task. +in=FILE: lines, hexadecimal: KIND A B
//   0: word B is written to address A, once no packet is inside     1: a packet with head B, A clocks later
//   2: the word at address A is read: a line "r VALUE"
// With MEMORY, the task has a memory of 2^SLOT_W words that answers after random times.
// +out=FILE: lines "o CLOCKS HEAD CLASS", or reads. +pauses=1: the receiver pauses at random.
`timescale 1ns / 1ps
module task_tb #(
    parameter HEAD_W = 352,
    parameter SLOT_W = 3
);
    reg clk = 1'b0;
    always #2.5 clk = !clk;
    reg [8*1024-1:0] in_name, out_name;
    integer in_file, out_file, scanned, pauses, inside, clock, gap, quiet;
    integer came [0:15];
    reg [3:0]  first, last;
    reg        rst, have, out_ready, wr_en;
    reg [31:0] op, a;
    reg [HEAD_W-1:0] b;
    wire       in_ready, out_valid;
    wire [HEAD_W-1:0] out_head;
    wire [15:0] out_class;
    reg [15:0]  wr_addr;
    reg [31:0]  wr_data;
`ifdef COUNTS
    wire [31:0] rd_data;
`endif
    reg  begun;
    wire in_valid = begun && have && op == 1 && gap == 0 && !rst;
`ifdef MEMORY
    reg  [255:0] memory [0:(1 << SLOT_W)-1];
    wire         mem_asks, mem_write;
    reg          mem_taken, mem_answer, mem_waits;
    wire [31:0]  mem_addr;
    wire [255:0] mem_word;
    reg  [255:0] mem_read;
    integer      m;
    initial begin
        for (m = 0; m < 1 << SLOT_W; m = m + 1) memory[m] = 256'd0;
        {mem_taken, mem_answer, mem_waits} = 3'd0;
    end
    always @(negedge clk) begin
        mem_answer = mem_waits && $random;
        mem_read   = mem_answer && !mem_write ? memory[mem_addr] : 256'd0;
        if (mem_answer && mem_write) memory[mem_addr] = mem_word;
        if (mem_answer) mem_waits = 1'b0;
        mem_taken = mem_asks && !mem_taken && !mem_waits && $random;
        if (mem_taken) mem_waits = 1'b1;
    end
`endif
    `TASK #(.HEAD_W(HEAD_W)
`ifdef MEMORY
        , .SLOT_W(SLOT_W)
`endif
`ifdef MEM
        , .MEM(`MEM)
`endif
    ) dut (
        .clk(clk), .rst(rst), .in_valid(in_valid), .in_ready(in_ready), .in_head(b),
        .out_ready(out_ready), .out_head(out_head), .out_class(out_class),
`ifdef MEM
        .wr_en(wr_en), .wr_addr(wr_addr), .wr_data(wr_data),
`endif
`ifdef MEMORY
        .mem_asks(mem_asks), .mem_taken(mem_taken), .mem_write(mem_write), .mem_addr(mem_addr), .mem_word(mem_word),
        .mem_answer(mem_answer), .mem_fault(1'b0), .mem_read(mem_read),
`endif
`ifdef COUNTS
        .rd_addr(a[15:0]), .rd_data(rd_data),
`endif
        .out_valid(out_valid)
    );
    task next;
        begin
            scanned = $fscanf(in_file, "%h %h %h", op, a, b);
            have = scanned == 3;
            gap  = (have && op == 1) ? a : 0;
        end
    endtask
    initial begin
        if (!$value$plusargs("in=%s", in_name)) $finish;
        if (!$value$plusargs("out=%s", out_name)) $finish;
        if (!$value$plusargs("pauses=%d", pauses)) pauses = 0;
        in_file  = $fopen(in_name, "r");
        out_file = $fopen(out_name, "w");
        rst = 1; begun = 0; wr_en = 0; out_ready = 1; inside = 0; clock = 0; quiet = 0; first = 0; last = 0;
        wr_addr = 0; wr_data = 0;
        next;
        repeat (4) @(negedge clk);
        rst = 0;
        // Decides at the falling edge, so that the rising edge sees settled values.
        while (quiet < 200 && clock < 100000) begin
            @(negedge clk);
            wr_en = 0; begun = 1;
            out_ready = !pauses || $random;
            if (inside == 0) quiet = quiet + 1;
            if (have && op == 0 && inside == 0 && quiet > 3) begin
                wr_en = 1; wr_addr = a[15:0]; wr_data = b[31:0];
                next; quiet = 0;
            end else if (have && op == 2 && inside == 0 && quiet > 3) begin
`ifdef COUNTS
                $fdisplay(out_file, "r %h", rd_data);
`endif
                next; quiet = 0;
            end else if (have && gap != 0) gap = gap - 1;
            #1;
            if (out_valid && out_ready) begin
                $fdisplay(out_file, "o %0d %h %h", clock - came[first], out_head, out_class);
                first = first + 1; inside = inside - 1; quiet = 0;
            end
            if (in_valid && in_ready) begin
                came[last] = clock;
                last = last + 1; inside = inside + 1; quiet = 0;
                @(posedge clk); #1 next;
            end
            clock = clock + 1;
        end
        $finish;
    end
endmodule
