// The responder's second half: the link from the predecessor. Takes packets in the order of their
// sequence, acknowledges, begins sessions, and hands on what the successor acknowledges.
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
    input  wire [15:0]  kind,         // type and identifier of the packet
    // Packets in order, each until it is done; one that is refused comes again later
    output wire         task_valid,
    input  wire         task_done,
    input  wire         task_refused,
    // The session
    output reg  [31:0]  session,
    output reg          clear,        // a clock, before its first packet
    output reg          status,       // a clock, after it: a STATUS packet is due
    // To the predecessor
    output reg  [31:0]  expected,
    output reg          reply,        // a clock: acknowledge
    // From the successor
    output reg          acknowledged, // a clock
    output reg          stray,        // a clock for each: of another session or another node
    output reg          again         // a clock for each: taken already, or too early
);
    localparam [1:0] IDLE = 2'd0, BEGIN = 2'd1, TASK = 2'd2;

    reg [1:0] state;
    reg       active;
    wire from_before = receiver == node && sender == predecessor && carries;
    wire from_behind = receiver == node && sender == successor && acknowledges;
    wire current     = active && in_session == session;
    // A session begins with START alone: a control packet, identifier 1.
    wire fresh = from_before && begins && (!active || in_session > session)
              && kind == 16'h0401;
    wire first = state == IDLE && in_valid;
    wire taken = first && from_before && current && !begins && sequence_ == expected;
    wire old   = first && from_before && current && !taken;
    assign task_valid = state == TASK;
    assign in_taken   = (first && !fresh && !taken) || (state == TASK && task_done);
    always @(posedge clk) begin
        clear        <= 1'b0;
        status       <= 1'b0;
        reply        <= old;
        again        <= old;
        acknowledged <= first && from_behind && current;
        stray        <= first && !fresh && !(from_before && current) && !(from_behind && current);
        case (state)
            IDLE:
                if (first && fresh) begin
                    active   <= 1'b1;
                    session  <= in_session;
                    expected <= 32'd0;
                    clear    <= 1'b1;
                    state    <= BEGIN;
                end else if (taken) state <= TASK;
            BEGIN: state <= TASK;
            default:
                if (task_done) begin
                    state <= IDLE;
                    if (!task_refused) begin
                        expected <= expected + 32'd1;
                        reply    <= 1'b1;
                        status   <= begins;
                    end
                end
        endcase
        if (rst) begin
            state        <= IDLE;
            active       <= 1'b0;
            session      <= 32'd0;
            expected     <= 32'd0;
            reply        <= 1'b0;
            acknowledged <= 1'b0;
            stray        <= 1'b0;
            again        <= 1'b0;
        end
    end
endmodule
