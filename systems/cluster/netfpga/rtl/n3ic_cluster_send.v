// SPDX-License-Identifier: Apache-2.0
// The link to the successor. Packets stay here until they are acknowledged, with at most 32 in
// flight. After `timeout` ticks without a new acknowledgement they are resent from the oldest on,
// except those that the successor has acknowledged selectively.
module n3ic_cluster_send #(
    parameter DEPTH_W = 8  // 2^DEPTH_W packets
) (
    input  wire         clk,
    input  wire         rst,
    input  wire         tick,
    input  wire [15:0]  timeout,
    input  wire         push,
    input  wire [511:0] push_packet,
    output wire         room,          // for four packets
    output wire         idle,          // nothing to send now
    // From the successor
    input  wire         ack,
    input  wire [31:0]  ack_sequence,  // what it expects next
    input  wire [31:0]  ack_selective,
    // To n3ic_cluster_reply
    output wire         out_valid,
    input  wire         out_taken,
    output wire [31:0]  out_sequence,
    output wire [511:0] out_packet,
    output reg          resent         // one clock for each
);
    localparam [1:0] IDLE = 2'd0, READ = 2'd1, READ2 = 2'd2, OFFER = 2'd3;

    // Sequence numbers: oldest unacknowledged, next to send, first never sent, end of the queue.
    reg [31:0] oldest, next, fresh, tail;
    reg [31:0] selective;     // bit i: oldest + 1 + i has arrived
    reg [15:0] waited;
    reg [1:0]  state;
    reg        acked;         // an acknowledgement waits
    reg [31:0] acked_sequence, acked_selective;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [31:0] used    = tail - oldest;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [31:0] ahead   = next - oldest;
    wire [31:0] gained  = acked_sequence - oldest;
    wire [4:0]  skip_at = ahead[4:0] - 5'd1;
    wire        skip    = ahead != 32'd0 && selective[skip_at];
    wire        due     = fresh != oldest && waited >= timeout;
    wire        sends   = next != tail && ahead < 32'd32;
    assign room         = used[31:DEPTH_W] == {(32 - DEPTH_W) {1'b0}}
                       && used[DEPTH_W-1:2] != {(DEPTH_W - 2) {1'b1}};
    assign idle         = state == IDLE && !acked && !due && !sends;
    assign out_valid    = state == OFFER;
    assign out_sequence = next;
    n3ic_cluster_ram #(.WIDTH(512), .ADDR_W(DEPTH_W)) packets (
        .clk(clk), .wr_en(push), .wr_addr(tail[DEPTH_W-1:0]), .wr_data(push_packet),
        .rd_addr(next[DEPTH_W-1:0]), .rd_data(out_packet)
    );
    always @(posedge clk) begin
        resent <= 1'b0;
        if (push) tail <= tail + 32'd1;
        if (tick && fresh != oldest && !due) waited <= waited + 16'd1;
        if (ack) begin
            acked           <= 1'b1;
            acked_sequence  <= ack_sequence;
            acked_selective <= ack_selective;
        end
        case (state)
            IDLE:
                if (acked) begin
                    acked <= ack;
                    // Modulo 2^32: an old or impossible acknowledgement is far ahead, and is
                    // ignored.
                    if (gained <= fresh - oldest) begin
                        oldest    <= acked_sequence;
                        selective <= acked_selective;
                        if (gained > ahead) next <= acked_sequence;
                        if (gained != 32'd0) waited <= 16'd0;
                    end
                end else if (due) begin
                    // Go back to the oldest; packets that were acknowledged selectively are skipped
                    // on the way.
                    next   <= oldest;
                    waited <= 16'd0;
                end else if (sends) begin
                    if (skip && next != fresh) next <= next + 32'd1;
                    else state <= READ;
                end
            READ:  state <= READ2;
            READ2: state <= OFFER;
            default:
                if (out_taken) begin
                    state <= IDLE;
                    next  <= next + 32'd1;
                    if (next == fresh) fresh <= next + 32'd1;
                    else resent <= 1'b1;
                    if (next == oldest) waited <= 16'd0;
                end
        endcase
        if (rst) begin
            state     <= IDLE;
            oldest    <= 32'd0;
            next      <= 32'd0;
            fresh     <= 32'd0;
            tail      <= 32'd0;
            selective <= 32'd0;
            waited    <= 16'd0;
            acked     <= 1'b0;
        end
    end
endmodule
