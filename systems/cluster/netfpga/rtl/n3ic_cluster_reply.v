// SPDX-License-Identifier: Apache-2.0
// Makes the leaving frames: answers to ARP, acknowledgements to the predecessor, and packets to the
// successor, one per datagram, each with its CRC-32.
module n3ic_cluster_reply (
    input  wire         clk,
    input  wire         rst,
    input  wire [7:0]   node,
    input  wire [31:0]  session,
    // Neighbours: number, and {MAC, IPv4, UDP port}
    input  wire [7:0]   predecessor,
    input  wire [95:0]  predecessor_at,
    input  wire [7:0]   successor,
    input  wire [95:0]  successor_at,
    input  wire         arp,          // one clock; replaces an answer that still waits
    input  wire [79:0]  arp_to,       // {MAC, IPv4}
    input  wire         ack,          // one clock; one that still waits is sent with the new number
    input  wire [31:0]  expected,
    input  wire [31:0]  arrived,      // bit i: expected + 1 + i has arrived
    input  wire         send_valid,
    output wire         send_taken,
    input  wire [31:0]  send_sequence,
    input  wire [511:0] send_packet,
    output wire         idle,
    // To n3ic_cluster_tx
    output wire         out_valid,
    input  wire         out_ready,
    output wire         out_arp,
    output wire [95:0]  out_to,
    output wire [15:0]  out_length,
    output wire [943:0] out_payload   // byte b in out_payload[8*b +: 8]
);
    localparam [3:0] SHORT = 4'd3, LONG = 4'd11;  // words of 8 bytes under the CRC

    reg          arp_waits, ack_waits, busy, long, is_arp;
    reg  [79:0]  arp_to_q;
    reg  [95:0]  to;
    reg  [3:0]   at;
    reg  [31:0]  crc;
    reg  [175:0] head;
    reg  [511:0] body;
    wire         free  = !busy;
    wire         takes = free && (arp_waits || ack_waits || send_valid);
    wire         acks  = free && !arp_waits && ack_waits;
    wire         sends = free && !arp_waits && !ack_waits && send_valid;
    wire         done  = busy && at == (long ? LONG : SHORT);
    assign send_taken  = sends;
    assign idle        = free && !arp_waits && !ack_waits;

    // As in n3ic_cluster_datagram: two zero bytes first, and the first four bytes inverted.
    wire [703:0] summed = {out_payload[687:32], ~out_payload[31:0], 16'd0};
    wire [63:0]  word   = summed[64*at +: 64];
    wire [31:0]  crc_next;
    n3ic_cluster_crc step (.crc(crc), .word(word), .next(crc_next));
    always @(posedge clk) begin
        if (takes) begin
            busy   <= 1'b1;
            is_arp <= arp_waits;
            long   <= sends;
            at     <= 4'd0;
            crc    <= 32'd0;
            to     <= arp_waits ? {arp_to_q, 16'd0} : acks ? predecessor_at : successor_at;
            // Magic, version; BEGIN with sequence 0, ACK; packets; session; from, to; numbers
            head   <= {24'h4e3301, sends && send_sequence == 32'd0, acks, 5'd0, sends, session,
                       node, acks ? predecessor : successor,
                       sends ? send_sequence : 32'd0, acks ? expected : 32'd0,
                       acks ? arrived : 32'd0};
            body   <= send_packet;
        end else if (busy && !done) begin
            at  <= at + 4'd1;
            crc <= crc_next;
        end else if (done && out_ready) busy <= 1'b0;
        arp_waits <= arp || (arp_waits && !takes);
        ack_waits <= ack || (ack_waits && !acks);
        if (arp) arp_to_q <= arp_to;
        if (rst) begin
            busy      <= 1'b0;
            arp_waits <= 1'b0;
            ack_waits <= 1'b0;
        end
    end
    assign out_valid  = done;
    assign out_arp    = is_arp;
    assign out_to     = to;
    assign out_length = long ? 16'd90 : 16'd26;
    // The byte order is reversed: the first byte becomes the lowest.
    wire [719:0] bytes = {head, long ? {body, ~crc} : {~crc, 512'd0}};
    genvar g;
    generate
        for (g = 0; g < 90; g = g + 1) begin : g_byte
            assign out_payload[8*g +: 8] = bytes[8*(89-g) +: 8];
        end
    endgenerate
    assign out_payload[943:720] = 224'd0;
endmodule
