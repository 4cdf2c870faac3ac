// SPDX-License-Identifier: Apache-2.0
// The task handler: classifier, splitter, and the input words of incomplete rows. It handles one
// packet at a time: it stores local words, and passes on packets for other nodes and the parts of
// a range on both sides of its own.
//
// With VALUES, words are integers of a row and its record counts packets, which are whole.
//
// The low bits of a row's number choose its slot. A packet is refused, and offered again later, if
// the successor's queue is full or the slot holds a row that is still being computed.
module n3ic_cluster_tasks #(
    parameter SLOT_W  = 5,   // 2^SLOT_W slots
    parameter WORDS_W = 7,   // 2^WORDS_W input words each, at least 5
    parameter VALUES  = 0    // 1: tasks with integers instead of bits; WORDS_W is at least 8
) (
    input  wire          clk,
    input  wire          rst,          // of a session
    // The share of this card
    input  wire [7:0]    node,
    input  wire [7:0]    array,
    input  wire [31:0]   start,
    input  wire [31:0]   end_,
    input  wire          by_inputs,    // 1: its range counts inputs; 0: neurons
    input  wire [11:0]   first_word,   // of its inputs
    input  wire [11:0]   words,        // of its inputs; packets with VALUES
    input  wire [31:0]   pad,          // pad bits of the last input word; words of the last packet
    // Packets: done a few clocks later
    input  wire          in_valid,
    input  wire [511:0]  packet,
    output reg           done,
    output reg           refused,
    output reg           bad,          // one clock for each impossible packet; the home is told
    output reg           stored,       // one clock for each packet with local words
    // To the successor's queue
    input  wire          room,
    output reg           push,
    output reg  [511:0]  push_packet,
    // Input words, by bank: 16 in a row; those marked `next` go to the following row
    output reg  [15:0]   in_en,
    output reg  [15:0]   in_next,
    output reg  [SLOT_W+WORDS_W-5:0] in_row,
    output reg  [SLOT_W+WORDS_W-5:0] in_next_row,
    output reg  [511:0]  in_bits,
    // Complete rows, and rows that have been computed
    output reg           ask_valid,    // one clock
    output reg  [15:0]   ask_row,
    input  wire          release_,
    input  wire [SLOT_W-1:0] release_slot
);
    localparam SLOTS  = 1 << SLOT_W;
    localparam MARK_W = (VALUES != 0) ? WORDS_W - 3 : WORDS_W;
    localparam MARKS  = 1 << MARK_W;  // words or packets of a row
    localparam [2:0] IDLE = 3'd0, LOOK = 3'd1, CHECK = 3'd2, LEFT = 3'd3, RIGHT = 3'd4, TURN = 3'd5;

    // --- fields -------------------------------------------------------------------------------
    wire [6:0]  type_       = packet[510:504];  // without the lap
    wire [7:0]  identifier  = packet[503:496];
    wire [7:0]  destination = packet[495:488];
    wire [31:0] from        = packet[479:448];
    wire [31:0] to          = packet[447:416];
    wire [15:0] row         = packet[415:400];
    wire [3:0]  count       = packet[399:396];
    wire [11:0] offset      = packet[395:384];

    // --- classifier and splitter ----------------------------------------------------------------
    reg  [2:0]  state;
    reg         torn, mine, left, right;
    reg  [12:0] low, high;      // local words, counted in the layer's input
    wire        meets  = from < end_ && to > start;
    wire        direct = destination == node;
    wire        split_word = from[4:0] != 5'd0 || to[4:0] != 5'd0;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [31:0] lower  = (direct || from > start) ? from : start;
    wire [31:0] upper  = (direct || to < end_) ? to : end_;
    // One past the last carried word or packet
    wire [12:0] stop   = {1'b0, offset} + ((VALUES != 0) ? 13'd1 : {9'd0, count});
    wire [31:0] upper_word = (upper + 32'd31) >> 5;
    /* verilator lint_on UNUSEDSIGNAL */

    // --- what is stored --------------------------------------------------------------------------
    reg  [SLOTS-1:0]   filling, complete;
    reg  [15:0]        tags [0:SLOTS-1];
    reg  [MARKS-1:0]   have [0:SLOTS-1];
    reg  [11:0]        missing [0:SLOTS-1];
    wire [SLOT_W-1:0]  slot   = row[SLOT_W-1:0];
    reg  [MARKS-1:0]   had;
    reg  [11:0]        lacks;
    reg                same_row;
    reg                outside;  // words outside the share, parts of words, or pad bits
    reg  [MARKS-1:0]   bits;     // the words of this packet
    reg  [3:0]         number;   // how many they are
    /* verilator lint_off UNUSEDSIGNAL */
    wire [15:0]        twelve = {1'b0, offset, 3'd0} + {2'd0, offset, 2'd0};
    wire [12:0]        at     = (VALUES != 0) ? twelve[12:0]  // position of body word 0
                                              : {1'b0, offset} - {1'b0, first_word};
    wire [12:0]        place  = low - {1'b0, first_word};             // of the first local word
    wire [12:0]        some   = high - low;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [15:0]        ones   = (16'd1 << some[3:0]) - 16'd1;
    wire [MARKS-1:0]   marks  = {{(MARKS - 16) {1'b0}}, ones} << place[MARK_W-1:0];
    wire               twice  = (had & bits) != {MARKS {1'b0}};
    wire               full   = lacks == {8'd0, number};
    wire               wrong  = torn || (mine && (outside || (filling[slot] && !same_row) || twice));

    // Body word i goes to bank (at + i) mod 16: the body rotates by 0 to 3 words, then by fours.
    wire [511:0] body;
    wire [15:0]  local_;
    wire [11:0]  padded;
    wire [12:0]  last_word = {1'b0, first_word} + {1'b0, words} - 13'd1;
    wire [3:0]   whole_packet = ({1'b0, offset} == last_word) ? pad[3:0] : 4'd12;
    genvar g;
    generate
        for (g = 0; g < 16; g = g + 1) begin : g_word
            if (g < 12) begin : g_carried
                wire [12:0] position = {1'b0, offset} + g;
                assign body[32*g +: 32] = packet[383-32*g -: 32];
                assign local_[g] = (VALUES != 0) ? count > g : position >= low && position < high;
                assign padded[g] = VALUES == 0 && position == last_word && (body[32*g +: 32] & pad) != 32'd0
                                && count > g;
            end else begin : g_none
                assign body[32*g +: 32] = 32'd0;
                assign local_[g] = 1'b0;
            end
        end
    endgenerate
    reg  [511:0] turned;
    reg  [15:0]  turned_local;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [1023:0] turn1 = {body, body} << {at[1:0], 5'd0};
    wire [1023:0] turn4 = {turned, turned} << {at[3:2], 7'd0};
    wire [31:0]   mark1 = {local_, local_} << at[1:0];
    wire [31:0]   mark4 = {turned_local, turned_local} << {at[3:2], 2'd0};
    /* verilator lint_on UNUSEDSIGNAL */
    wire [WORDS_W-5:0] in_line = at[WORDS_W-1:4];

    // ERROR with code 2, an impossible packet; this node reports it and is the node in question.
    wire [511:0] complaint = {
        32'h04040000, 64'd0, {8'd0, node}, 16'd0, 32'd2, {24'd0, node}, "a packet that cannot be",
        136'd0
    };
    integer i;
    always @(posedge clk) begin
        done      <= 1'b0;
        refused   <= 1'b0;
        bad       <= 1'b0;
        stored    <= 1'b0;
        push      <= 1'b0;
        ask_valid <= 1'b0;
        in_en     <= 16'd0;
        case (state)
            IDLE: begin
                torn <= type_[6:4] != 3'd0 || type_[3:0] == 4'd0 || type_[3:0] > 4'd4
                     || (type_[3:0] != 4'd4 && from >= to) || count > 4'd12;
                mine <= type_ == 7'd1 && array == packet[487:480]
                     && identifier == ((VALUES != 0) ? 8'd4 : by_inputs ? 8'd2 : 8'd1)
                     && (direct || (destination == 8'd255 && meets));
                left  <= !direct && from < start;
                right <= !direct && to > end_;
                low   <= by_inputs ? {1'b0, lower[16:5]} : {1'b0, offset};
                high  <= by_inputs ? upper_word[12:0] : stop;
                had   <= filling[slot] ? have[slot] : {MARKS {1'b0}};
                lacks <= filling[slot] ? missing[slot] : words;
                same_row <= tags[slot] == row;
                if (in_valid && !done) state <= LOOK;
            end
            LOOK: begin
                outside <= padded != 12'd0 || (VALUES != 0 && count != whole_packet) || low < {1'b0, offset} || high > stop || low >= high
                        || low < {1'b0, first_word}
                        || high > {1'b0, first_word} + {1'b0, words}
                        || (by_inputs ? split_word || (direct && (from < start || to > end_))
                                      : from > start || to < end_);
                bits   <= marks;
                number <= some[3:0];
                state  <= CHECK;
            end
            CHECK: begin
                state <= IDLE;
                // Refused before it is checked: while the slot's old row is being computed, the
                // slot's record of words says nothing about this packet's row.
                if (!room || (mine && complete[slot])) begin
                    done    <= 1'b1;
                    refused <= 1'b1;
                end else if (wrong) begin
                    done        <= 1'b1;
                    bad         <= 1'b1;
                    push        <= 1'b1;
                    push_packet <= complaint;
                end else if (!mine) begin
                    done        <= 1'b1;
                    push        <= 1'b1;
                    push_packet <= packet;
                end else state <= LEFT;
                turned       <= turn1[1023:512];
                turned_local <= mark1[31:16];
            end
            LEFT: begin
                push        <= left;
                push_packet <= {packet[511:448], start, packet[415:0]};
                state       <= RIGHT;
            end
            RIGHT: begin
                push        <= right;
                push_packet <= {packet[511:480], end_, packet[447:0]};
                state       <= TURN;
            end
            default: begin
                state  <= IDLE;
                done   <= 1'b1;
                stored <= 1'b1;
                in_en  <= mark4[31:16];
                for (i = 0; i < 16; i = i + 1) in_next[i] <= i[3:0] < at[3:0];
                in_row  <= {slot, in_line};
                in_next_row <= {slot, in_line + 1'b1};
                in_bits <= turn4[1023:512];
                have[slot]    <= had | bits;
                missing[slot] <= lacks - {8'd0, number};
                tags[slot]    <= row;
                filling[slot] <= !full;
                complete[slot] <= full;
                ask_valid <= full;
                ask_row   <= row;
            end
        endcase
        if (release_) complete[release_slot] <= 1'b0;
        if (rst) begin
            state    <= IDLE;
            done     <= 1'b0;
            push     <= 1'b0;
            filling  <= {SLOTS {1'b0}};
            complete <= {SLOTS {1'b0}};
        end
    end
endmodule
