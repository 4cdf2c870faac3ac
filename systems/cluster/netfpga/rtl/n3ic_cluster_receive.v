// SPDX-License-Identifier: Apache-2.0
// The responder's second half: the link from the predecessor. It keeps packets that arrive out of
// order, delivers them in sequence, acknowledges them, begins sessions, and passes on the
// acknowledgements of the successor.
//
// A packet that the task handler refuses stays here and is offered again.
module n3ic_cluster_receive (
    input  wire         clk,
    input  wire         rst,
    input  wire [7:0]   node,
    input  wire [7:0]   predecessor,
    input  wire [7:0]   successor,
    // Datagrams
    input  wire         in_valid,
    output wire         in_taken,
    input  wire         begins,
    input  wire         acknowledges,
    input  wire         carries,
    input  wire [31:0]  in_session,
    input  wire [7:0]   sender,
    input  wire [7:0]   receiver,
    input  wire [31:0]  sequence_,
    input  wire [511:0] in_packet,
    // Packets in order; each is held until it is done
    output wire         task_valid,
    output wire [511:0] packet,
    input  wire         task_done,
    input  wire         task_refused,
    // The session
    output reg  [31:0]  session,
    output reg          clear,        // one clock before the session's first packet
    output reg          status,       // one clock after it: a STATUS packet is due
    output wire         idle,
    // To the predecessor
    output reg  [31:0]  expected,
    output wire [31:0]  selective,    // bit i: expected + 1 + i has arrived
    output reg          reply,        // one clock: acknowledge
    // From the successor
    output reg          acknowledged, // one clock
    output reg          stray,        // one clock each: from another session or another node
    output reg          again,        // one clock each: a duplicate, or beyond the window
    output reg          refused       // one clock for each packet that must wait
);
    localparam [2:0] IDLE = 3'd0, BEGIN = 3'd1, READ = 3'd2, READ2 = 3'd3, TASK = 3'd4;

    reg [2:0]  state;
    reg        active, waits;
    reg [31:0] here;  // by the low bits of the sequence: arrived, of the 32 from `expected` on
    wire from_before = receiver == node && sender == predecessor && carries;
    wire from_behind = receiver == node && sender == successor && acknowledges;
    wire current     = active && in_session == session;
    // Only START, a control packet with identifier 1, begins a session.
    wire fresh = from_before && begins && (!active || in_session > session)
              && in_packet[511:496] == 16'h0401;
    wire first = state == IDLE && in_valid;
    wire link  = first && from_before && current && !fresh;
    wire [31:0] ahead = sequence_ - expected;
    wire takes = link && !begins && ahead < 32'd32 && !here[sequence_[4:0]];
    wire next  = here[expected[4:0]];
    /* verilator lint_off UNUSEDSIGNAL */
    wire [63:0] turned = {here, here} >> expected[4:0];
    /* verilator lint_on UNUSEDSIGNAL */
    // Bit 0 of `turned` is the expected packet itself, which the sequence number stands for.
    assign selective  = {1'b0, turned[31:1]};
    assign task_valid = state == TASK;
    assign in_taken   = (first && !fresh) || state == BEGIN;
    assign idle       = state == IDLE && !next;
    n3ic_cluster_ram #(.WIDTH(512), .ADDR_W(5)) packets (
        .clk(clk), .wr_en(takes || state == BEGIN),
        .wr_addr((state == BEGIN) ? 5'd0 : sequence_[4:0]), .wr_data(in_packet),
        .rd_addr(expected[4:0]), .rd_data(packet)
    );
    always @(posedge clk) begin
        clear        <= 1'b0;
        status       <= 1'b0;
        refused      <= 1'b0;
        reply        <= link && ahead != 32'd0;  // the expected one is acknowledged when it is done
        again        <= link && !takes;
        acknowledged <= first && from_behind && current;
        stray        <= first && !fresh && !(from_before && current) && !(from_behind && current);
        case (state)
            IDLE:
                if (first && fresh) begin
                    active   <= 1'b1;
                    session  <= in_session;
                    expected <= 32'd0;
                    here     <= 32'd0;
                    waits    <= 1'b0;
                    clear    <= 1'b1;
                    state    <= BEGIN;
                end else if (takes) here[sequence_[4:0]] <= 1'b1;
                else if (!in_valid && next) state <= READ;
            BEGIN: begin
                here[0] <= 1'b1;
                state   <= IDLE;
            end
            READ:  state <= READ2;
            READ2: state <= TASK;
            default:
                if (task_done) begin
                    state   <= IDLE;
                    // A refused packet keeps its place and is offered again, but counts once.
                    waits   <= task_refused;
                    refused <= task_refused && !waits;
                    if (!task_refused) begin
                        expected            <= expected + 32'd1;
                        here[expected[4:0]] <= 1'b0;
                        reply               <= 1'b1;
                        status              <= expected == 32'd0;
                    end
                end
        endcase
        if (rst) begin
            state        <= IDLE;
            active       <= 1'b0;
            session      <= 32'd0;
            expected     <= 32'd0;
            here         <= 32'd0;
            waits        <= 1'b0;
            reply        <= 1'b0;
            acknowledged <= 1'b0;
            stray        <= 1'b0;
            again        <= 1'b0;
        end
    end
endmodule
