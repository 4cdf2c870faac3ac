// SPDX-License-Identifier: Apache-2.0
// What the benches of shells share: two streams under random pauses, and the registers. Stream 0
// passes the network, stream 1 passes unchanged. A bench declares clk, bus_clk, running, sent, due,
// the streams' m_beat, and a task start; `BASE is the address of the first register, and `EARLY is
// whether beats are offered from the beginning of the reset.
reg  [31:0] at [0:1], back [0:1];
reg  [1:0]  s_valid, m_ready;
wire [1:0]  s_ready, m_valid;
reg awvalid = 1'b0, wvalid = 1'b0, arvalid = 1'b0;
reg  [31:0] address = 32'd0;
wire [31:0] rdata;
wire awready, wready, arready, bvalid, rvalid;
wire [1:0] bresp, rresp;

task fail(input [8*24-1:0] what, input integer index);
    begin
        $display("FAIL %0s at %0d", what, index);
        $finish;
    end
endtask

// A byte counts only where tkeep has its bit.
function same(input [W-1:0] got, input [W-1:0] wanted);
    integer b;
    begin
        same = got[W-1:512] === wanted[W-1:512];
        for (b = 0; b < 64; b = b + 1)
            if (wanted[512+b] && got[8*b +: 8] !== wanted[8*b +: 8]) same = 1'b0;
    end
endfunction

integer p, clocks = 0, pauses = `PAUSES, first = 0, last = 0;  // clocks of a beat of stream 0
always @(posedge clk)
    if (!running) begin
        for (p = 0; p < 2; p = p + 1) begin
            at[p]      <= 32'd0;
            back[p]    <= 32'd0;
            s_valid[p] <= `EARLY;
            m_ready[p] <= 1'b0;
        end
    end else begin
        clocks <= clocks + 1;
        for (p = 0; p < 2; p = p + 1) begin
            m_ready[p] <= !pauses || $random % 3 != 0;
            if (s_valid[p] && s_ready[p]) begin
                if (p == 0 && at[p] == 32'd0) first = clocks;
                at[p]      <= at[p] + 32'd1;
                s_valid[p] <= at[p] + 32'd1 < BEATS && (!pauses || $random % 4 != 0);
            end else if (!s_valid[p])
                s_valid[p] <= at[p] < BEATS && (!pauses || $random % 4 != 0);
            if (m_valid[p] && m_ready[p]) begin
                if (back[p] >= BEATS) fail("a beat too many", back[p]);
                else if (!same(m_beat[p], p == 0 ? due[back[p]] : sent[back[p]]))
                    fail(p == 0 ? "a beat of stream 0" : "a beat of stream 1", back[p]);
                if (p == 0) last = clocks;
                back[p] <= back[p] + 32'd1;
            end
        end
        if (clocks > 100000) fail("it stands still", back[0]);
    end

// Signals of the bus change at falling edges.
task read(input [31:0] where, input [31:0] wanted);
    begin
        @(negedge bus_clk);
        address = `BASE + where;
        arvalid = 1'b1;
        @(posedge bus_clk);
        while (!arready) @(posedge bus_clk);
        @(negedge bus_clk);
        arvalid = 1'b0;
        while (!rvalid) @(negedge bus_clk);
        if (rdata !== wanted || rresp !== 2'd0) begin
            $display("register %h is %h", where, rdata);
            fail("a register", where);
        end
    end
endtask

initial begin
    $readmemh("sent.mem", sent);
    $readmemh("due.mem", due);
    repeat (8) @(posedge bus_clk);
    start;
    read(32'h00, 32'h4e334943);
    while (back[0] < BEATS || back[1] < BEATS) @(posedge clk);
    repeat (20) @(posedge clk);
    read(32'h40, `PACKETS);
    read(32'h44, `PACKETS);
    // A write to a register that is only read is an error.
    @(negedge bus_clk);
    address = `BASE;
    awvalid = 1'b1;
    wvalid  = 1'b1;
    @(posedge bus_clk);
    while (!awready) @(posedge bus_clk);
    @(negedge bus_clk);
    awvalid = 1'b0;
    wvalid  = 1'b0;
    while (!bvalid) @(negedge bus_clk);
    if (bresp == 2'd0) fail("a write", 0);
    $display("PASS in %0d clocks", last - first + 1);
    $finish;
end
