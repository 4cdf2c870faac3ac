// SPDX-License-Identifier: Apache-2.0
// TCP for a bounded number of sessions that peers open. Data is accepted only in order: a segment
// that comes too early is dropped, and the peer sends it again. Results are kept as records, one per
// segment, until they are acknowledged. A timer resends all of them, from the oldest on.
//
// A segment is accepted only if the memory has room for all results that it can request. The window
// announces only that many segments, so results never wait for room.
/* verilator lint_off WIDTH */  // loop variables have 32 bits
module n3ic_fe_tcp #(
    parameter W         = 64,
    parameter CW        = 7,
    parameter META_W    = 242,
    parameter OUT_W     = 236,
    parameter TAG_W     = 99,
    parameter REMAINS_W = 282,
    parameter SESSIONS  = 4,
    parameter SW        = 2,
    parameter MSS       = 1460,  // bytes of a segment, as announced to the peer
    parameter WORDS_W   = 7,     // 2^WORDS_W beats of results are kept for a session
    parameter SEG_WORDS = 26,    // maximum beats of the results of a segment
    parameter RECORDS_W = 5,     // 2^RECORDS_W records
    parameter SEG_RECORDS = 5    // maximum records of the results of a segment
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire [15:0]          cfg_port,
    input  wire [31:0]          cfg_resend,  // clocks per tick; segments are sent again after two ticks
    // segments
    input  wire                 in_valid,
    output wire                 in_ready,
    input  wire                 in_first,
    input  wire                 in_last,
    input  wire                 in_sound,
    input  wire [META_W-1:0]    in_meta,
    // accepted segments, to n3ic_fe_rows
    output wire                 seg_valid,
    input  wire                 seg_ready,
    output wire [TAG_W-1:0]     seg_tag,
    output wire [REMAINS_W-1:0] seg_remains,
    input  wire                 saved,
    input  wire [REMAINS_W-1:0] remains,
    // results
    input  wire                 out_valid,
    output wire                 out_ready,
    input  wire                 out_last,
    input  wire                 out_keep,
    input  wire [CW-1:0]        out_count,
    input  wire [8*W-1:0]       out_data,
    input  wire [SW-1:0]        out_session,
    // to the frames
    output reg                  meta_valid,
    output reg  [OUT_W-1:0]     meta,
    input  wire                 meta_pop,
    output reg                  beat_valid,
    output reg  [8*W-1:0]       beat,
    input  wire                 beat_pop,
    output wire [3:0]           count  // one bit each: segment dropped, reset, session opened, resend
);
    localparam PW = WORDS_W + 1, RW = RECORDS_W + 1, LOG = CW - 1;
    localparam REC_W = WORDS_W + 16 + 16 + 32;
    localparam MOST = 8;  // maximum segments that the window announces
    localparam AGE = 600; // ticks after which a silent session ends
    localparam FIN = 0, SYN = 1, RST = 2, ACK = 4;  // bits of the flags
    localparam [1:0] SKIP = 2'd2;  // state of n3ic_fe_rows: the stream cannot be parsed any more
    integer i;

    // --- sessions -------------------------------------------------------------------------------
    reg [SESSIONS-1:0] used, opening, fin_in, fin_due, fin_out, fin_done, ack_due, syn_due, roomy, force_one;
    reg [47:0] mac [0:SESSIONS-1];
    reg [31:0] ip [0:SESSIONS-1];
    reg [15:0] port [0:SESSIONS-1];
    reg [31:0] rcv_nxt [0:SESSIONS-1];   // the next byte to accept
    reg [31:0] snd_una [0:SESSIONS-1];   // the oldest byte that is not acknowledged
    reg [31:0] snd_end [0:SESSIONS-1];   // the byte after the last one of the results
    reg [15:0] window [0:SESSIONS-1];    // the peer's window
    reg [2:0]  under_way [0:SESSIONS-1]; // segments whose results are being computed
    reg [RW-1:0] head [0:SESSIONS-1];    // records: the oldest, the next to send, after the last
    reg [RW-1:0] next [0:SESSIONS-1];
    reg [RW-1:0] tail [0:SESSIONS-1];
    reg [PW-1:0] first [0:SESSIONS-1];   // beats: first of the oldest record, after the last
    reg [PW-1:0] last [0:SESSIONS-1];
    reg [7:0]  patience [0:SESSIONS-1];  // ticks until the timer
    reg [3:0]  tries [0:SESSIONS-1];
    reg [9:0]  age [0:SESSIONS-1];       // ticks since the last segment
    reg [REMAINS_W-1:0] contexts [0:SESSIONS-1];
    reg [REC_W-1:0] records [0:(SESSIONS << RECORDS_W)-1];  // first beat, bytes, sum, next sequence number
    reg [8*W-1:0]   words [0:(SESSIONS << WORDS_W)-1];

    reg [31:0] now, ticks;
    wire       tick = ticks == 32'd0;

    // Number of segments for which a session has room.
    function [3:0] room(input [PW-1:0] from, input [PW-1:0] to, input [RW-1:0] oldest, input [RW-1:0] newest,
                        input [2:0] busy);
        reg [PW-1:0] beats;
        reg [RW-1:0] slots;
        integer k;
        begin
            beats = (1 << WORDS_W) - (to - from);
            slots = (1 << RECORDS_W) - (newest - oldest);
            room  = 4'd0;
            for (k = 1; k <= MOST; k = k + 1)
                if (beats >= (busy + k) * SEG_WORDS && slots >= (busy + k) * SEG_RECORDS) room = k;
            if (&busy) room = 4'd0;
        end
    endfunction

    // --- a segment comes in ---------------------------------------------------------------------
    localparam [2:0] R_IDLE = 3'd0, R_LOOK = 3'd1, R_PASS = 3'd2, R_DONE = 3'd3, R_FREE = 3'd4, R_WAIT = 3'd5, R_FIND = 3'd6;
    reg [2:0]  r_state;
    reg        hit, vacant, feed, was_saved, was_full, is_sound;
    reg [SW-1:0] sel;
    reg [META_W-1:0] meta_copy;  // after the last beat, the input shows the next frame's fields
    wire [47:0] s_mac;
    wire [31:0] s_ip, s_seq, s_ack;
    wire [15:0] s_port, s_own, s_length, s_window, s_mss;
    wire [7:0]  s_flags;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [9:0]  s_kind;
    /* verilator lint_on UNUSEDSIGNAL */
    assign {s_kind, s_length, s_mac, s_ip, s_port, s_own, s_seq, s_ack, s_flags, s_window, s_mss} = meta_copy;
    wire [3:0]  s_room = room(first[sel], last[sel], head[sel], tail[sel], under_way[sel]);
    wire        in_order = s_seq == rcv_nxt[sel];
    wire        plain = s_flags[ACK] && !s_flags[RST] && !s_flags[SYN];
    wire        takes = hit && plain && in_order && !fin_in[sel] && s_length != 16'd0 && s_length <= MSS && s_room != 4'd0;
    assign in_ready  = r_state == R_PASS && (!feed || seg_ready);
    assign seg_valid = r_state == R_PASS && feed && in_valid;
    assign seg_tag   = {{(TAG_W - SW) {1'b0}}, sel};
    assign seg_remains = contexts[sel];
    wire [31:0] acked   = s_ack - snd_una[sel];
    wire [31:0] allowed = snd_end[sel] - snd_una[sel] + {31'd0, fin_out[sel]};
    wire        new_ack = hit && plain && acked != 32'd0 && acked <= allowed;
    wire        fin_now = s_flags[FIN] && s_seq + {16'd0, s_length} == rcv_nxt[sel] + (feed ? {16'd0, s_length} : 32'd0)
        && (feed || s_length == 16'd0) && !fin_in[sel];
    wire        opens = !hit && s_flags[SYN] && !s_flags[ACK] && !s_flags[RST] && !s_flags[FIN] && s_own == cfg_port
        && vacant
        && s_mss >= 16'd536;
    // The oldest record of the session whose acknowledgement came.
    /* verilator lint_off UNUSEDSIGNAL */
    wire [REC_W-1:0] oldest = records[{sel, head[sel][RECORDS_W-1:0]}];
    /* verilator lint_on UNUSEDSIGNAL */
    wire [15:0] oldest_bytes = oldest[48 +: 16];
    wire        freed = head[sel] != tail[sel] && $signed(snd_una[sel] - oldest[31:0]) >= 0;
    wire [PW-1:0] oldest_words = (oldest_bytes + W - 1) >> LOG;

    // --- a reset for a segment of no session -----------------------------------------------------
    reg               reset_due;
    reg [OUT_W-1:0]   reset;

    // --- results come ---------------------------------------------------------------------------
    localparam [1:0] W_IDLE = 2'd0, W_DATA = 2'd1, W_SUM = 2'd2, W_RECORD = 2'd3;
    reg [1:0]    w_state;
    reg [SW-1:0] w_session;
    reg [RW-1:0] w_tail;
    reg [PW-1:0] w_last;
    reg [WORDS_W-1:0] w_first;
    reg [31:0]   w_end, w_total;
    reg [15:0]   w_bytes;
    reg          w_closed, w_keep, w_sum1, w_sum2;
    assign out_ready = w_state == W_DATA;
    wire   w_take  = out_valid && out_ready;
    wire   w_write = w_take && out_count != {CW {1'b0}};
    wire [22:0] w_sum;
    n3ic_fe_sum #(.W(W)) sums (.clk(clk), .data(out_data), .sum(w_sum));
    wire [16:0] w_half = {1'b0, w_total[15:0]} + {1'b0, w_total[31:16]};
    wire [15:0] w_fold = w_half[15:0] + {15'd0, w_half[16]};

    // --- a segment leaves ---------------------------------------------------------------------
    localparam T_SCAN = 1'b0, T_LOOK = 1'b1;
    reg          t_state;
    reg [SW-1:0] t;
    reg [REC_W-1:0] t_record;
    reg [RW-1:0] t_next;
    reg          t_known;
    reg [WORDS_W-1:0] t_word;
    reg [SW-1:0] t_session;
    reg [15:0]   t_left;  // beats that remain to be read
    wire t_idle = !meta_valid && t_left == 16'd0;
    wire t_more = next[t] != tail[t];
    wire t_fits = force_one[t] || t_record[31:0] - snd_una[t] <= {16'd0, window[t]};
    wire t_open = used[t] && !opening[t];
    // The record that was read existed then, and is still the next to send.
    wire t_sends = t_open && t_known && t_next == next[t] && t_fits;
    wire t_fin   = t_open && fin_due[t] && !fin_out[t] && !t_more && under_way[t] == 3'd0;
    wire t_acks  = t_open && ack_due[t] && under_way[t] == 3'd0;  // otherwise the results carry it
    wire t_waits = used[t] && (opening[t] || next[t] != head[t] || fin_out[t] && !fin_done[t] || t_more && !t_sends);
    wire t_late  = t_waits && patience[t] == 8'd0;
    wire [3:0]  t_room = room(first[t], last[t], head[t], tail[t], under_way[t]);
    wire [15:0] t_window = t_room * MSS;
    wire [OUT_W-1:0] t_meta = {
        3'd4, mac[t], ip[t], port[t],
        t_sends ? t_record[48 +: 16] : 16'd0, t_sends ? t_record[32 +: 16] : 16'd0,
        syn_due[t] ? snd_una[t] : t_sends ? t_record[31:0] - {16'd0, t_record[48 +: 16]} : snd_end[t] + {31'd0, fin_out[t]},
        rcv_nxt[t], cfg_port,
        syn_due[t] ? 8'h12 : t_sends ? 8'h18 : t_fin ? 8'h11 : 8'h10,
        t_window, syn_due[t]
    };
    assign count = {
        t_state == T_LOOK && t_late,
        r_state == R_DONE && is_sound && opens,
        r_state == R_DONE && is_sound && !hit && !s_flags[RST] && !opens,
        r_state == R_DONE && is_sound && hit && plain && s_length != 16'd0 && !feed
    };

    always @(posedge clk) begin
        now   <= now + 32'd1;
        ticks <= tick ? cfg_resend : ticks - 32'd1;
        if (tick)
            for (i = 0; i < SESSIONS; i = i + 1) begin
                if (patience[i] != 8'd0) patience[i] <= patience[i] - 8'd1;
                age[i] <= age[i] + 10'd1;
                if (age[i] == AGE) used[i] <= 1'b0;
            end

        // --- results to records -----------------------------------------------------------------
        w_sum1 <= w_write;
        w_sum2 <= w_sum1;
        if (w_sum2) w_total <= w_total + {9'd0, w_sum};
        if (w_write) words[{w_session, w_last[WORDS_W-1:0]}] <= out_data;
        case (w_state)
            W_IDLE: if (out_valid) begin
                w_session <= out_session;
                w_tail    <= tail[out_session];
                w_last    <= last[out_session];
                w_first   <= last[out_session][WORDS_W-1:0];
                w_end     <= snd_end[out_session];
                w_bytes   <= 16'd0;
                w_total   <= 32'd0;
                w_state   <= W_DATA;
            end
            W_DATA: if (w_take) begin
                w_last  <= w_last + {{(PW - 1) {1'b0}}, w_write};
                w_bytes <= w_bytes + {{(16 - CW) {1'b0}}, out_count};
                if (out_last || w_bytes + W == (roomy[w_session] ? 16'd1408 : 16'd512)) begin
                    w_closed <= out_last;
                    w_keep   <= out_keep;
                    w_state  <= W_SUM;
                end
            end
            W_SUM: if (!w_sum1 && !w_sum2) w_state <= W_RECORD;
            default: begin
                if (w_bytes != 16'd0) begin
                    records[{w_session, w_tail[RECORDS_W-1:0]}] <= {w_first, w_bytes, w_fold,
                        w_end + {16'd0, w_bytes}};
                    w_tail <= w_tail + 1'b1;
                    w_end  <= w_end + {16'd0, w_bytes};
                end
                w_first <= w_last[WORDS_W-1:0];
                w_bytes <= 16'd0;
                w_total <= 32'd0;
                w_state <= w_closed ? W_IDLE : W_DATA;
                if (w_closed) begin
                    if (w_keep) begin
                        tail[w_session]    <= w_bytes != 16'd0 ? w_tail + 1'b1 : w_tail;
                        last[w_session]    <= w_last;
                        snd_end[w_session] <= w_bytes != 16'd0 ? w_end + {16'd0, w_bytes} : w_end;
                    end
                    under_way[w_session] <= under_way[w_session] - 3'd1;
                end
            end
        endcase

        // --- segments out -------------------------------------------------------------------------
        if (meta_pop) meta_valid <= 1'b0;
        if ((!beat_valid || beat_pop) && t_left != 16'd0) begin
            beat       <= words[{t_session, t_word}];
            beat_valid <= 1'b1;
            t_word     <= t_word + 1'b1;
            t_left     <= t_left - 16'd1;
        end else if (beat_pop) beat_valid <= 1'b0;
        case (t_state)
            T_SCAN: begin
                if (reset_due && t_idle) begin
                    meta       <= reset;
                    meta_valid <= 1'b1;
                    reset_due  <= 1'b0;
                end else begin
                    t_record <= records[{t, next[t][RECORDS_W-1:0]}];
                    t_next   <= next[t];
                    t_known  <= t_more;
                    t_state  <= T_LOOK;
                end
            end
            default: begin
                t_state <= T_SCAN;
                t <= t == SESSIONS - 1 ? {SW {1'b0}} : t + 1'b1;
                if (t_late) begin  // from the oldest one on
                    tries[t]     <= tries[t] + 4'd1;
                    patience[t]  <= 8'd2 << (tries[t] > 4'd5 ? 4'd5 : tries[t]);
                    next[t]      <= head[t];
                    fin_out[t]   <= 1'b0;
                    syn_due[t]   <= opening[t];
                    force_one[t] <= 1'b1;
                    if (tries[t] == 4'd10) used[t] <= 1'b0;
                end else if (t_idle && (used[t] && syn_due[t] || t_sends || t_fin || t_acks)) begin
                    meta       <= t_meta;
                    meta_valid <= 1'b1;
                    ack_due[t] <= 1'b0;
                    syn_due[t] <= 1'b0;
                    if (!syn_due[t] && t_sends) begin
                        t_session <= t;
                        t_word    <= t_record[64 +: WORDS_W];
                        t_left    <= (t_record[48 +: 16] + W - 1) >> LOG;
                        next[t]   <= next[t] + 1'b1;
                        force_one[t] <= 1'b0;
                        if (next[t] == head[t]) patience[t] <= 8'd2 << (tries[t] > 4'd5 ? 4'd5 : tries[t]);
                    end else if (!syn_due[t] && t_fin) begin
                        fin_out[t]  <= 1'b1;
                        patience[t] <= 8'd2 << (tries[t] > 4'd5 ? 4'd5 : tries[t]);
                    end
                end
            end
        endcase

        // --- segments in: their assignments come last and win ---------------------------------------
        if (saved) was_saved <= 1'b1;
        case (r_state)
            R_IDLE: if (in_valid && in_first) begin
                meta_copy <= in_meta;
                r_state <= R_FIND;
            end
            R_FIND: begin
                hit    <= 1'b0;
                vacant <= 1'b0;
                sel    <= {SW {1'b0}};
                for (i = 0; i < SESSIONS; i = i + 1)
                    if (!used[i] && under_way[i] == 3'd0) begin
                        vacant <= 1'b1;
                        sel    <= i;
                    end
                for (i = 0; i < SESSIONS; i = i + 1)
                    if (used[i] && ip[i] == s_ip && port[i] == s_port && s_own == cfg_port) begin
                        hit <= 1'b1;
                        sel <= i;
                    end
                r_state <= R_LOOK;
            end
            R_LOOK: begin
                feed      <= takes;
                was_saved <= 1'b0;
                if (takes) under_way[sel] <= under_way[sel] + 3'd1 - {2'd0, w_state == W_RECORD && w_closed && w_session == sel};
                r_state   <= R_PASS;
            end
            R_PASS: if (in_valid && in_ready && in_last) begin
                is_sound <= in_sound;
                r_state  <= R_DONE;
            end
            R_DONE: begin
                r_state  <= R_FREE;
                was_full <= hit && s_room == 4'd0;
                if (is_sound && !hit) begin
                    if (opens) begin
                        used[sel]     <= 1'b1;
                        opening[sel]  <= 1'b1;
                        syn_due[sel]  <= 1'b1;
                        ack_due[sel]  <= 1'b0;
                        fin_in[sel]   <= 1'b0;
                        fin_due[sel]  <= 1'b0;
                        fin_out[sel]  <= 1'b0;
                        fin_done[sel] <= 1'b0;
                        force_one[sel] <= 1'b0;
                        roomy[sel]    <= s_mss >= 16'd1460;
                        mac[sel]      <= s_mac;
                        ip[sel]       <= s_ip;
                        port[sel]     <= s_port;
                        rcv_nxt[sel]  <= s_seq + 32'd1;
                        snd_una[sel]  <= now ^ s_ip ^ {s_port, s_port};
                        snd_end[sel]  <= (now ^ s_ip ^ {s_port, s_port}) + 32'd1;
                        window[sel]   <= s_window;
                        head[sel]     <= {RW {1'b0}};
                        next[sel]     <= {RW {1'b0}};
                        tail[sel]     <= {RW {1'b0}};
                        first[sel]    <= {PW {1'b0}};
                        last[sel]     <= {PW {1'b0}};
                        tries[sel]    <= 4'd0;
                        patience[sel] <= 8'd2;
                        age[sel]      <= 10'd0;
                        contexts[sel] <= {REMAINS_W {1'b0}};
                    end else if (!s_flags[RST] && !reset_due) begin
                        reset_due <= 1'b1;
                        reset <= {
                            3'd4, s_mac, s_ip, s_port, 32'd0, s_flags[ACK] ? s_ack : 32'd0,
                            s_seq + {16'd0, s_length} + {31'd0, s_flags[SYN]} + {31'd0, s_flags[FIN]},
                            s_own, s_flags[ACK] ? 8'h04 : 8'h14, 16'd0, 1'b0
                        };
                    end
                end else if (is_sound && s_flags[RST]) begin
                    if (in_order) used[sel] <= 1'b0;
                end else if (is_sound && s_flags[SYN]) begin
                    if (opening[sel]) syn_due[sel] <= 1'b1;
                    else ack_due[sel] <= 1'b1;
                end else if (is_sound && plain) begin
                    age[sel] <= 10'd0;
                    if (in_order) window[sel] <= s_window;
                    if (new_ack) begin
                        snd_una[sel]  <= s_ack;
                        opening[sel]  <= 1'b0;
                        syn_due[sel]  <= 1'b0;
                        tries[sel]    <= 4'd0;
                        patience[sel] <= 8'd2;
                        if (fin_out[sel] && acked == allowed) fin_done[sel] <= 1'b1;
                        if (fin_out[sel] && acked == allowed && (fin_in[sel] || fin_now)) used[sel] <= 1'b0;
                    end else if (fin_now && fin_done[sel]) used[sel] <= 1'b0;
                    // A byte before the next one is a probe: of the session, or of a closed window.
                    if (s_length != 16'd0 || s_flags[FIN] || s_seq + 32'd1 == rcv_nxt[sel]) ack_due[sel] <= 1'b1;
                    rcv_nxt[sel] <= rcv_nxt[sel] + (feed ? {16'd0, s_length} : 32'd0) + {31'd0, fin_now};
                    if (fin_now) begin
                        fin_in[sel]  <= 1'b1;
                        fin_due[sel] <= 1'b1;
                    end
                end
            end
            R_FREE: if (hit && freed) begin  // one record per clock
                head[sel]  <= head[sel] + 1'b1;
                first[sel] <= first[sel] + oldest_words;
                if (next[sel] == head[sel]) next[sel] <= head[sel] + 1'b1;
            end else begin
                if (was_full && s_room != 4'd0) ack_due[sel] <= 1'b1;  // the window opens again
                r_state <= feed ? R_WAIT : R_IDLE;
            end
            default: if (was_saved || saved) r_state <= R_IDLE;
        endcase
        // n3ic_fe_rows ends a segment after its last beat, which says whether it is sound.
        if (saved && is_sound) begin
            contexts[sel] <= remains;
            if (remains[REMAINS_W-1 -: 2] == SKIP) fin_due[sel] <= 1'b1;
        end
        if (rst) begin
            used       <= {SESSIONS {1'b0}};
            now        <= 32'd0;
            ticks      <= 32'd1;
            r_state    <= R_IDLE;
            w_state    <= W_IDLE;
            t_state    <= T_SCAN;
            t          <= {SW {1'b0}};
            t_left     <= 16'd0;
            meta_valid <= 1'b0;
            beat_valid <= 1'b0;
            reset_due  <= 1'b0;
            w_sum1     <= 1'b0;
            w_sum2     <= 1'b0;
            for (i = 0; i < SESSIONS; i = i + 1) under_way[i] <= 3'd0;
        end
    end
endmodule
/* verilator lint_on WIDTH */
