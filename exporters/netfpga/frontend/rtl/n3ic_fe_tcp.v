// SPDX-License-Identifier: Apache-2.0
// TCP for sessions that peers open. The state of all sessions lies in one memory, which one engine
// reads and writes: it takes one event at a time, a segment, a result, a segment to send, or a timer.
//
// A SYN leaves no state. Its answer's sequence number is a cookie, and the acknowledgement of a
// cookie opens a session (RFC 4987). Data is accepted only in order: a segment that comes too early
// is dropped, and the peer sends it again. Results are kept in buffers of a common pool, one per
// segment, until they are acknowledged. A lost one is sent again after three duplicate
// acknowledgements (NewReno, RFC 6582, without a congestion window), and all of them after a time.
//
// A segment is accepted only if the pool has buffers for all results that it can request, and more
// than its session holds. The window announces only that many segments.
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
    parameter POOL_W    = 6,     // 2^POOL_W buffers
    parameter BUFFER_W  = 5,     // 2^BUFFER_W beats of a buffer
    parameter SEG_RECORDS = 4,   // maximum buffers of the results of a segment
    parameter IDLE      = 8      // silent ticks after which a session may have to leave
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire [15:0]          cfg_port,
    input  wire [31:0]          cfg_resend,  // clocks per tick; segments are sent again after two ticks
    input  wire [63:0]          cfg_key,     // of the cookies, secret
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
    input  wire [SW+1:0]        out_tag,  // class of the peer's MSS, session
    // to the frames
    output reg                  meta_valid,
    output reg  [OUT_W-1:0]     meta,
    input  wire                 meta_pop,
    output reg                  beat_valid,
    output wire [8*W-1:0]       beat,
    input  wire                 beat_pop,
    // one bit each: segment dropped, reset, session opened, resend, cookie sent, session refused, evicted
    output wire [6:0]           count
);
    localparam LOG = CW - 1, HW = SW + 1;  // 2^HW buckets
    localparam MOST = 8;    // maximum segments that the window announces
    localparam AGE = 600;   // ticks after which a silent session ends
    localparam SPARE = SESSIONS / 16;  // sessions leave until so many are free
    localparam FIN = 0, SYN = 1, RST = 2, ACK = 4;  // bits of the flags
    localparam [1:0] SKIP = 2'd2;  // state of n3ic_fe_rows: the stream cannot be parsed any more

    // --- the state of a session -------------------------------------------------------------------
    reg used, queued, fin_in, fin_due, fin_out, fin_done, ack_due, shut;
    reg begun;                   // its context is in the memory
    reg blocked;                 // the next buffer exceeds the peer's window
    reg force_one, probe;        // send it nevertheless, or its first byte
    reg again, recovering;       // send the oldest buffer again; until `recover` is acknowledged
    reg [1:0]  dups, size;       // duplicate acknowledgements; class of the peer's MSS
    reg [2:0]  under_way;        // segments whose results are being computed
    reg [3:0]  tries;
    reg [7:0]  challenged;       // tick of the last challenge
    reg [15:0] due, seen;        // tick of the timer, and of the last segment
    reg [15:0] window;           // the peer's
    reg [31:0] rcv_nxt, snd_una; // the next byte to accept, the oldest one that is not acknowledged
    reg [31:0] snd_max, snd_end; // after the last byte sent, after the last one of the results
    reg [31:0] head_seq, next_seq, recover;
    reg [POOL_W-1:0] head, next, tail;  // buffers: the oldest, the next to send, the last
    reg [POOL_W:0] held, flight; // number of buffers, and of those that were sent
    reg [47:0] mac;
    reg [31:0] ip;
    reg [15:0] port;
    reg        linked;           // `link` is the next session of the bucket
    reg [SW-1:0] link;
    localparam KEY_W = 48 + 1 + SW;
    localparam STATE_W = 14 + 4 + 3 + 4 + 8 + 48 + 7*32 + 3*POOL_W + 2*(POOL_W + 1) + 48 + KEY_W;
`define N3IC_STATE {used, queued, fin_in, fin_due, fin_out, fin_done, ack_due, shut, begun, blocked, force_one, probe, \
    again, recovering, dups, size, under_way, tries, challenged, due, seen, window, rcv_nxt, snd_una, snd_max, snd_end, \
    head_seq, next_seq, recover, head, next, tail, held, flight, mac, ip, port, linked, link}
    reg  [STATE_W-1:0] states [0:(1 << SW)-1];
    reg  [STATE_W-1:0] state, state_in;
    reg  [SW-1:0]      look, state_at;
    reg                state_write;
    always @(posedge clk) begin
        if (state_write) states[state_at] <= state_in;
        state <= states[look];
    end
    wire          key_linked;
    wire [SW-1:0] key_link;
    wire [31:0]   key_ip;
    wire [15:0]   key_port;
    assign {key_ip, key_port, key_linked, key_link} = state[KEY_W-1:0];

    // Buckets of sessions, by a hash of address and port that only the holder of the key knows.
    reg  [SW:0]   buckets [0:(1 << HW)-1];
    reg  [SW:0]   bucket, bucket_in;
    reg  [HW-1:0] bucket_look, bucket_at;
    reg           bucket_write;
    always @(posedge clk) begin
        if (bucket_write) buckets[bucket_at] <= bucket_in;
        bucket <= buckets[bucket_look];
    end
    wire [63:0] spread = cfg_key ^ 64'h6d5a_56da_255b_0ec2;
    function [HW-1:0] bucket_of(input [47:0] value, input [63:0] with_key);  // Toeplitz
        integer k;
        for (k = 0; k < HW; k = k + 1) bucket_of[k] = ^(value & with_key[k +: 48]);
    endfunction

    // What of a message is not parsed yet.
    reg [REMAINS_W-1:0] contexts [0:(1 << SW)-1];
    reg [REMAINS_W-1:0] own_context;

    // --- buffers ------------------------------------------------------------------------------------
    reg  [8*W-1:0]    words [0:(1 << (POOL_W + BUFFER_W))-1];
    reg  [34:0]       records [0:(1 << POOL_W)-1];  // bytes, sum, first byte
    reg  [POOL_W-1:0] links [0:(1 << POOL_W)-1];    // the buffer after it
    reg  [34:0]       record;
    reg  [POOL_W-1:0] after, record_look;
    reg               link_write;
    reg  [POOL_W-1:0] link_at, link_in;
    wire [15:0] record_bytes = {5'd0, record[34:24]};
    always @(posedge clk) begin
        if (link_write) links[link_at] <= link_in;
        after <= links[record_look];
    end
    reg               spare_valid;
    reg  [POOL_W-1:0] spare, vacant;      // a buffer to take; the first of the list behind it
    reg  [POOL_W:0]   unused, listed;     // the first buffer never used; length of the list
    reg               give;               // a list of buffers
    reg  [POOL_W-1:0] give_head, give_tail;
    reg  [POOL_W:0]   given;
    reg  [POOL_W+1:0] taken, promised;
    wire signed [POOL_W+2:0] left = (1 << POOL_W) - $signed({1'b0, taken}) - $signed({1'b0, promised});

    // Number of segments for which a session has room.
    function [3:0] room(input signed [POOL_W+2:0] free, input [POOL_W:0] own, input [2:0] busy);
        integer k;
        begin
            room = 4'd0;
            for (k = 1; k <= MOST; k = k + 1) if (free >= k * SEG_RECORDS + $signed({2'b00, own})) room = k;
            if (&busy) room = 4'd0;
        end
    endfunction
    wire [3:0] rooms = room(left, held, under_way);

    // --- time -----------------------------------------------------------------------------------------
    reg  [31:0] ticks, now;
    wire        tick = ticks == 32'd0;

    // --- sessions without a peer ------------------------------------------------------------------------
    reg  [SW:0]   fresh;  // the first session never used
    wire [SW:0]   idles;
    wire          idle_valid;
    wire [SW-1:0] idle;
    reg           idle_pop, idle_push;
    reg           work_pop, work_push;
    wire          work_valid;
    wire [SW-1:0] work;
    reg  [SW-1:0] at;     // the engine's session
    /* verilator lint_off UNUSEDSIGNAL */
    wire [SW:0]   works;
    /* verilator lint_on UNUSEDSIGNAL */
    n3ic_fe_fifo #(.WIDTH(SW), .DEPTH_W(SW)) idle_queue (
        .clk(clk), .rst(rst), .push(idle_push), .in_data(at), .out_valid(idle_valid), .out_data(idle), .pop(idle_pop),
        .level(idles)
    );
    // Sessions that have something to send, each at most once.
    n3ic_fe_fifo #(.WIDTH(SW), .DEPTH_W(SW)) work_queue (
        .clk(clk), .rst(rst), .push(work_push), .in_data(at), .out_valid(work_valid), .out_data(work), .pop(work_pop),
        .level(works)
    );
    wire is_fresh = fresh != SESSIONS;
    wire is_free  = is_fresh || idle_valid;
    reg  pressed;  // a session was refused: silent ones leave

    // --- a segment comes in -----------------------------------------------------------------------------
    localparam [3:0] R_IDLE = 4'd0, R_ASK = 4'd1, R_MISS = 4'd2, R_HASH = 4'd3, R_OPEN = 4'd4, R_PASS = 4'd5,
        R_SAVE = 4'd6, R_DONE = 4'd7, R_REPLY = 4'd8;
    reg [3:0]  r_state;
    reg        hit, feed, opens, mute, skips, was_begun, refuses, is_sound;
    reg [SW-1:0] sel;
    reg [1:0]  sel_size;
    reg [31:0] cookie;
    reg [META_W-1:0] meta_copy;  // after the last beat, the input shows the next frame's fields
    wire [47:0] s_mac;
    wire [31:0] s_ip, s_seq, s_ack;
    wire [15:0] s_port, s_own, s_length, s_window, s_mss;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [7:0]  s_flags;
    wire [9:0]  s_kind;
    /* verilator lint_on UNUSEDSIGNAL */
    assign {s_kind, s_length, s_mac, s_ip, s_port, s_own, s_seq, s_ack, s_flags, s_window, s_mss} = meta_copy;
    wire        plain   = s_flags[ACK] && !s_flags[RST] && !s_flags[SYN];
    wire        is_open = s_flags[SYN] && !s_flags[ACK] && !s_flags[RST] && !s_flags[FIN] && s_mss >= 16'd536;
    // An acknowledgement is of sent bytes, or an old one (RFC 5961, 5.2).
    wire        in_order = s_seq == rcv_nxt;
    wire [31:0] acked    = s_ack - snd_una;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [31:0] ago      = snd_una - s_ack;
    wire [31:0] beyond   = s_seq - rcv_nxt;
    /* verilator lint_on UNUSEDSIGNAL */
    wire        is_new   = acked != 32'd0 && acked <= snd_max - snd_una;
    wire        is_known = acked <= snd_max - snd_una || ago[31:16] == 16'd0;
    wire        takes    = plain && in_order && is_known && !fin_in && s_length != 16'd0 && s_length <= MSS && rooms != 4'd0;
    wire        fin_now  = s_flags[FIN] && s_seq + {16'd0, s_length} == rcv_nxt + (feed ? {16'd0, s_length} : 32'd0)
        && (feed || s_length == 16'd0) && !fin_in;
    wire        fin_acked = fin_done || (fin_due && snd_max == snd_end + 32'd1 && s_ack == snd_max);
    wire        ends     = fin_acked && (fin_in || fin_now);
    wire        repeats  = plain && s_length == 16'd0 && !s_flags[FIN] && in_order && s_ack == snd_una
        && s_window == window && flight != 0;

    assign in_ready  = r_state == R_PASS && (!feed || seg_ready);
    assign seg_valid = r_state == R_PASS && feed && in_valid;
    assign seg_tag   = {{(TAG_W - SW - 2) {1'b0}}, sel_size, sel};
    assign seg_remains = was_begun ? own_context : {REMAINS_W {1'b0}};

    // A cookie: 5 bits of the period, 2 of the class of MSS, 25 of the hash.
    wire [25:0] period = now[31:6];  // of 64 ticks
    wire [31:0] echoed = s_ack - 32'd1;
    wire [4:0]  aged   = period[4:0] - echoed[31:27];
    wire [1:0]  s_size = s_mss >= 16'd1408 ? 2'd3 : s_mss >= 16'd1216 ? 2'd2 : s_mss >= 16'd960 ? 2'd1 : 2'd0;
    wire [25:0] its_period = is_open ? period : period - {21'd0, aged};
    wire [1:0]  its_size   = is_open ? s_size : echoed[26:25];
    wire        hashed;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [31:0] hash;
    /* verilator lint_on UNUSEDSIGNAL */
    n3ic_fe_cookie cookies (
        .clk(clk), .rst(rst), .key(cfg_key), .start(r_state == R_MISS),
        .message({4'd0, its_period, its_size, is_open ? s_seq : s_seq - 32'd1, s_port, s_own, s_ip}), .valid(hashed),
        .hash(hash)
    );
    wire [31:0] its_cookie = {its_period[4:0], its_size, hash[24:0]};

    // --- an answer that needs no session: to a SYN, to a stray segment, to the last FIN ------------------
    reg               reply_due;
    reg [OUT_W-1:0]   reply;
    wire [3:0]        new_room = room(left, {(POOL_W + 1) {1'b0}}, 3'd0);
    wire [15:0]       new_window = new_room * MSS;
    wire [31:0]       s_next = s_seq + {16'd0, s_length} + {31'd0, s_flags[SYN]} + {31'd0, s_flags[FIN]};

    // --- results come -------------------------------------------------------------------------------------
    localparam [2:0] W_IDLE = 3'd0, W_DATA = 3'd1, W_SUM = 3'd2, W_RECORD = 3'd3, W_NEXT = 3'd4, W_POST = 3'd5;
    reg [2:0]    w_state;
    reg [SW-1:0] w_session;
    reg [1:0]    w_size;
    reg          w_has;      // w_buffer is ours, and empty
    reg [POOL_W-1:0] w_buffer, w_head, w_tail;
    reg [POOL_W:0]   w_count;
    reg [BUFFER_W-1:0] w_word;
    reg [31:0]   w_total;
    reg [15:0]   w_bytes, w_all;
    reg [7:0]    w_first;
    reg          w_closed, w_keep, w_sum1, w_sum2;
    assign out_ready = w_state == W_DATA;
    wire   w_take  = out_valid && out_ready;
    wire   w_write = w_take && out_count != {CW {1'b0}};
    wire   w_links = w_state == W_RECORD && w_bytes != 16'd0;
    wire   w_gets  = !w_has && spare_valid && (w_state == W_NEXT || w_state == W_IDLE);
    wire [15:0] w_limit = w_size == 2'd3 ? 16'd1408 : w_size == 2'd2 ? 16'd1216 : w_size == 2'd1 ? 16'd960 : 16'd512;
    wire [22:0] w_sum;
    n3ic_fe_sum #(.W(W)) sums (.clk(clk), .data(out_data), .sum(w_sum));
    wire [16:0] w_half = {1'b0, w_total[15:0]} + {1'b0, w_total[31:16]};
    wire [15:0] w_fold = w_half[15:0] + {15'd0, w_half[16]};

    // --- the engine ---------------------------------------------------------------------------------------
    localparam [3:0] E_CLEAR = 4'd0, E_IDLE = 4'd1, E_HEAD = 4'd2, E_WALK = 4'd3, E_LOAD = 4'd4, E_DO = 4'd5,
        E_FREE = 4'd6, E_SEND = 4'd7, E_WRITE = 4'd8, E_CLOSE = 4'd9, E_UNLINK = 4'd10, E_BEFORE = 4'd11, E_GONE = 4'd12;
    localparam [2:0] FIND = 3'd0, OPEN = 3'd1, SEGMENT = 3'd2, RESULT = 3'd3, SEND = 3'd4, TIMER = 3'd5;
    reg [3:0]    e_state;
    reg [2:0]    op;
    reg [SW-1:0] previous, sweep;
    reg          sweeping, from_fresh;
    reg [HW-1:0] clear;
    reg [15:0]   t_left;  // beats that remain to be read
    reg [POOL_W-1:0]   t_buffer;
    reg [BUFFER_W-1:0] t_word;
    // The mask of a probe stands behind the memory's register, so that the memory is block RAM.
    reg            t_single;  // the beat has one byte
    reg  [8*W-1:0] word;
    assign beat = t_single ? {{(8*W - 8) {1'b0}}, word[7:0]} : word;
    wire t_idle = !meta_valid && t_left == 16'd0;
    wire may_send = t_idle && !reply_due && work_valid;
    wire sending  = op == SEND && (e_state == E_LOAD || e_state == E_DO || e_state == E_SEND);
    wire [HW-1:0] own_bucket  = bucket_of({ip, port}, spread);
    wire [HW-1:0] peer_bucket = bucket_of({s_ip, s_port}, spread);
    wire waits  = flight != 0 || (fin_out && !fin_done) || (held != flight && blocked);
    wire [15:0] age  = now[15:0] - seen;
    wire late = waits && $signed(now[15:0] - due) >= 0;
    wire [15:0] next_due = now[15:0] + (16'd2 << (tries > 4'd5 ? 4'd5 : tries));
    // A silent session leaves after AGE ticks, sooner if others wait for a session or for buffers.
    wire evicts = age >= AGE || (pressed && age >= IDLE && under_way == 3'd0) || (left < SEG_RECORDS && tries >= 4'd3);
    wire fin_ready = fin_due && !fin_out && held == flight && under_way == 3'd0;
    wire acks   = ack_due && under_way == 3'd0;  // otherwise the results carry it
    wire wants  = used && (again && held != 0 || held != flight && (!blocked || force_one || probe) || fin_ready || acks);
    wire freed  = held != 0 && $signed(snd_una - (head_seq + {16'd0, record_bytes})) >= 0;
    wire frees  = e_state == E_FREE && freed && !w_links;
    wire appends = op == RESULT && e_state == E_DO && used && w_keep && w_count != 0;
    wire drops   = op == RESULT && e_state == E_DO && !(used && w_keep) && w_count != 0;
    wire closes  = e_state == E_CLOSE && !w_links;
    // what is sent
    wire x_again = again && held != 0;
    wire x_fits  = next_seq + {16'd0, record_bytes} - snd_una <= {16'd0, window};
    wire x_next  = !x_again && held != flight && (x_fits || force_one);
    wire x_probe = !x_again && !x_next && held != flight && probe && !beat_valid;  // else in a later turn
    wire x_data  = x_again || x_next || x_probe;
    wire x_fin   = !x_data && fin_ready;
    wire [15:0] x_bytes = x_probe ? 16'd1 : record_bytes;
    wire [31:0] x_seq = x_again ? head_seq : x_data ? next_seq : x_fin ? snd_end : snd_max;
    wire [31:0] x_end = x_seq + (x_data ? {16'd0, x_bytes} : {31'd0, x_fin});
    wire [15:0] x_window = rooms * MSS;

    always @* begin
        // memories
        look = at;
        case (e_state)
            E_IDLE: look = r_state == R_DONE ? sel : r_state == R_OPEN ? (is_fresh ? fresh[SW-1:0] : idle)
                : w_state == W_POST ? w_session : may_send ? work : sweep;
            E_HEAD, E_UNLINK: look = bucket[SW-1:0];
            E_WALK, E_BEFORE: look = key_link;
            default: look = at;
        endcase
        state_write = e_state == E_WRITE || e_state == E_GONE || (e_state == E_BEFORE && key_linked && key_link == at);
        state_at    = e_state == E_BEFORE ? previous : at;
        state_in    = `N3IC_STATE;
        if (e_state == E_BEFORE) state_in = {state[STATE_W-1:SW+1], linked, link};
        if (e_state == E_WRITE) state_in[STATE_W-2] = queued || wants;
        bucket_look = e_state == E_CLOSE ? own_bucket : peer_bucket;
        bucket_write = e_state == E_CLEAR || (e_state == E_DO && op == OPEN)
            || (e_state == E_UNLINK && bucket[SW-1:0] == at);
        bucket_at = e_state == E_CLEAR ? clear : e_state == E_UNLINK ? own_bucket : peer_bucket;
        bucket_in = e_state == E_CLEAR ? {(SW + 1) {1'b0}} : e_state == E_UNLINK ? {linked, link} : {1'b1, at};
        record_look = e_state == E_DO && op == SEND && !again ? next : frees ? after : head;
        // buffers back to the pool
        give = frees || drops || (closes && held != 0);
        give_head = drops ? w_head : head;
        give_tail = drops ? w_tail : closes ? tail : head;
        given     = drops ? w_count : closes ? held : {{POOL_W {1'b0}}, 1'b1};
        link_write = give || w_links || (appends && held != 0);
        link_at = give ? give_tail : w_links ? w_tail : tail;
        link_in = give ? vacant : w_links ? w_buffer : w_head;
        if (w_links && w_count == 0) link_write = 1'b0;
        // queues
        idle_pop  = e_state == E_IDLE && r_state == R_OPEN && !is_fresh;
        idle_push = (e_state == E_GONE && under_way == 3'd0)
            || (e_state == E_DO && op == RESULT && !used && under_way == 3'd1);
        work_pop  = e_state == E_IDLE && r_state != R_ASK && r_state != R_DONE && r_state != R_OPEN && w_state != W_POST
            && may_send;
        work_push = e_state == E_WRITE && wants && !queued;
    end
    wire done = e_state == E_DO && op == SEGMENT;
    wire too_late = e_state == E_DO && op == TIMER && used && late;
    assign count = {
        e_state == E_DO && op == TIMER && used && (late ? tries == 4'd10 : evicts),
        refuses,
        r_state == R_REPLY && !reply_due && opens && is_sound,
        too_late,
        e_state == E_DO && op == OPEN,
        r_state == R_REPLY && !reply_due && !opens && !mute && is_sound && !s_flags[RST],
        done && plain && s_length != 16'd0 && !feed
    };

    always @(posedge clk) begin
        // --- time ---------------------------------------------------------------------------------
        ticks <= tick ? cfg_resend : ticks - 32'd1;
        if (tick) now <= now + 32'd1;
        if (!sweeping && (tick || refuses)) begin
            sweeping <= fresh != 0;
            sweep    <= {SW {1'b0}};
        end
        refuses <= 1'b0;
        if (refuses) pressed <= 1'b1;
        else if (is_fresh || idles > SPARE) pressed <= 1'b0;

        // --- the pool -----------------------------------------------------------------------------
        if (give) begin
            vacant <= give_head;
            listed <= listed + given;
        end else if (!spare_valid && !link_write && unused[POOL_W]) begin
            if (listed != 0) begin
                spare       <= vacant;
                spare_valid <= 1'b1;
                listed      <= listed - 1'b1;
                vacant      <= links[vacant];
            end
        end else if (!spare_valid && !unused[POOL_W]) begin
            spare       <= unused[POOL_W-1:0];
            spare_valid <= 1'b1;
            unused      <= unused + 1'b1;
        end
        taken <= taken + w_links - (give ? given : {(POOL_W + 1) {1'b0}});
        record <= records[record_look];

        // --- results to buffers -------------------------------------------------------------------
        w_sum1 <= w_write;
        w_sum2 <= w_sum1;
        if (w_sum2) w_total <= w_total + {9'd0, w_sum};
        if (w_write) words[{w_buffer, w_word}] <= out_data;
        if (w_gets) begin
            w_buffer    <= spare;
            w_has       <= 1'b1;
            spare_valid <= 1'b0;
        end
        if (w_links) records[w_buffer] <= {w_bytes[10:0], w_fold, w_first};
        case (w_state)
            W_IDLE: if (out_valid && w_has) begin
                {w_size, w_session} <= out_tag;
                w_count <= {(POOL_W + 1) {1'b0}};
                w_all   <= 16'd0;
                w_bytes <= 16'd0;
                w_word  <= {BUFFER_W {1'b0}};
                w_total <= 32'd0;
                w_state <= W_DATA;
            end
            W_DATA: if (w_take) begin
                w_word  <= w_word + w_write;
                w_bytes <= w_bytes + {{(16 - CW) {1'b0}}, out_count};
                if (w_bytes == 16'd0) w_first <= out_data[7:0];
                if (out_last || w_bytes + W == w_limit) begin
                    w_closed <= out_last;
                    w_keep   <= out_keep;
                    w_state  <= W_SUM;
                end
            end
            W_SUM: if (!w_sum1 && !w_sum2) w_state <= W_RECORD;
            W_RECORD: begin
                if (w_bytes != 16'd0) begin
                    if (w_count == 0) w_head <= w_buffer;
                    w_tail  <= w_buffer;
                    w_count <= w_count + 1'b1;
                    w_all   <= w_all + w_bytes;
                    w_has   <= 1'b0;
                end
                w_bytes <= 16'd0;
                w_word  <= {BUFFER_W {1'b0}};
                w_total <= 32'd0;
                w_state <= w_closed ? W_POST : W_NEXT;
            end
            W_NEXT: if (w_has) w_state <= W_DATA;
            default: if (e_state == E_DO && op == RESULT) w_state <= W_IDLE;
        endcase

        // --- segments out -------------------------------------------------------------------------
        if (meta_pop) meta_valid <= 1'b0;
        if ((!beat_valid || beat_pop) && t_left != 16'd0) begin
            word       <= words[{t_buffer, t_word}];
            beat_valid <= 1'b1;
            t_word     <= t_word + 1'b1;
            t_left     <= t_left - 16'd1;
        end else if (beat_pop) beat_valid <= 1'b0;
        if (beat_pop) t_single <= 1'b0;
        if (reply_due && t_idle && !sending) begin
            meta       <= reply;
            meta_valid <= 1'b1;
            reply_due  <= 1'b0;
        end

        // --- segments in ----------------------------------------------------------------------------
        case (r_state)
            R_IDLE: if (in_valid && in_first) begin
                meta_copy <= in_meta;
                hit       <= 1'b0;
                feed      <= 1'b0;
                opens     <= 1'b0;
                mute      <= 1'b0;
                skips     <= 1'b0;
                r_state   <= R_ASK;
            end
            R_MISS: r_state <= s_own == cfg_port && (is_open || (plain && aged < 5'd4)) ? R_HASH : R_PASS;
            R_HASH: if (hashed) begin
                cookie  <= its_cookie;
                opens   <= is_open;
                r_state <= R_PASS;
                if (!is_open && its_cookie == echoed) begin
                    if (is_free) r_state <= R_OPEN;
                    else begin  // the peer will try again
                        mute    <= 1'b1;
                        refuses <= 1'b1;
                    end
                end
            end
            R_PASS: if (in_valid && in_ready && in_last) begin
                is_sound <= in_sound;
                r_state  <= feed ? R_SAVE : hit ? R_DONE : R_REPLY;
            end
            // n3ic_fe_rows ends a segment after its last beat, which says whether it is sound.
            R_SAVE: if (saved) begin
                skips   <= remains[REMAINS_W-1 -: 2] == SKIP;
                r_state <= is_sound ? R_DONE : R_IDLE;
            end
            R_DONE: if (!is_sound) r_state <= R_IDLE;
            R_REPLY: if (!is_sound || mute || (s_flags[RST] && !opens)) r_state <= R_IDLE;
            else if (!reply_due) begin
                r_state   <= R_IDLE;
                reply_due <= 1'b1;
                reply <= opens ? {
                    3'd4, s_mac, s_ip, s_port, 32'd0, cookie, s_seq + 32'd1, s_own, 8'h12, new_window, 1'b1
                } : {
                    3'd4, s_mac, s_ip, s_port, 32'd0, s_flags[ACK] ? s_ack : 32'd0, s_next,
                    s_own, s_flags[ACK] ? 8'h04 : 8'h14, 16'd0, 1'b0
                };
            end
            default: ;  // the engine goes on
        endcase
        if (r_state == R_SAVE && saved && is_sound) contexts[sel] <= remains;

        // --- the engine: its assignments come last and win ------------------------------------------------
        if (e_state == E_DO && op == FIND) own_context <= contexts[at];
        case (e_state)
            E_CLEAR: begin
                clear <= clear + 1'b1;
                if (&clear) e_state <= E_IDLE;
            end
            E_IDLE: begin
                from_fresh <= is_fresh;
                if (r_state == R_ASK) begin
                    op      <= FIND;
                    e_state <= E_HEAD;
                end else if (r_state == R_DONE) begin
                    op      <= SEGMENT;
                    at      <= sel;
                    if (is_sound) e_state <= E_LOAD;
                end else if (r_state == R_OPEN) begin
                    op      <= OPEN;
                    at      <= look;
                    e_state <= E_LOAD;
                    if (is_fresh) fresh <= fresh + 1'b1;
                end else if (w_state == W_POST) begin
                    op      <= RESULT;
                    at      <= look;
                    e_state <= E_LOAD;
                end else if (may_send) begin
                    op      <= SEND;
                    at      <= look;
                    e_state <= E_LOAD;
                end else if (sweeping) begin
                    op      <= TIMER;
                    at      <= look;
                    e_state <= E_LOAD;
                    sweep   <= sweep + 1'b1;
                    if ({1'b0, sweep} + 1'b1 == fresh) sweeping <= 1'b0;
                end
            end
            E_HEAD: begin
                at      <= bucket[SW-1:0];
                e_state <= bucket[SW] ? E_WALK : E_IDLE;
                if (!bucket[SW]) r_state <= R_MISS;
            end
            E_WALK: begin
                `N3IC_STATE <= state;
                at <= key_link;
                if (key_ip == s_ip && key_port == s_port && s_own == cfg_port) begin
                    at      <= at;
                    e_state <= E_DO;
                end else if (!key_linked) begin
                    e_state <= E_IDLE;
                    r_state <= R_MISS;
                end
            end
            E_LOAD: begin
                `N3IC_STATE <= state;
                e_state     <= E_DO;
            end
            E_DO: case (op)
                FIND: begin
                    hit       <= 1'b1;
                    sel       <= at;
                    sel_size  <= size;
                    was_begun <= begun;
                    feed      <= takes;
                    r_state   <= R_PASS;
                    e_state   <= takes ? E_WRITE : E_IDLE;
                    if (takes) begin
                        under_way <= under_way + 3'd1;
                        promised  <= promised + SEG_RECORDS;
                    end
                end
                OPEN: begin
                    used       <= 1'b1;
                    queued     <= queued && !from_fresh;
                    {fin_in, fin_due, fin_out, fin_done, ack_due, shut, begun, blocked, force_one, probe, again,
                        recovering, dups, under_way, tries} <= 21'd0;
                    size       <= echoed[26:25];
                    challenged <= now[7:0] - 8'd1;
                    seen       <= now[15:0];
                    window     <= s_window;
                    rcv_nxt    <= s_seq;
                    snd_una    <= s_ack;
                    snd_max    <= s_ack;
                    snd_end    <= s_ack;
                    head_seq   <= s_ack;
                    next_seq   <= s_ack;
                    held       <= {(POOL_W + 1) {1'b0}};
                    flight     <= {(POOL_W + 1) {1'b0}};
                    mac        <= s_mac;
                    ip         <= s_ip;
                    port       <= s_port;
                    {linked, link} <= bucket;
                    op         <= FIND;
                    // The state is written even if no data is taken.
                    e_state    <= E_WRITE;
                end
                SEGMENT: begin
                    r_state <= R_IDLE;
                    e_state <= E_WRITE;
                    if (!used) e_state <= E_IDLE;
                    else if (s_flags[RST] && in_order) e_state <= E_CLOSE;
                    else if (s_flags[RST] || s_flags[SYN] || (plain && !is_known)) begin
                        // RFC 5961: a challenge, at most one per tick and session; RFC 9293 for unsent data
                        if ((!s_flags[RST] || beyond[31:16] == 16'd0) && challenged != now[7:0]) begin
                            challenged <= now[7:0];
                            ack_due    <= 1'b1;
                        end
                    end else if (plain) begin
                        e_state <= E_FREE;
                        seen    <= now[15:0];
                        blocked <= 1'b0;
                        if (in_order) window <= s_window;
                        if (is_new) begin
                            snd_una <= s_ack;
                            tries   <= 4'd0;
                            due     <= now[15:0] + 16'd2;
                            dups    <= 2'd0;
                            if (recovering) begin
                                if ($signed(s_ack - recover) >= 0) recovering <= 1'b0;
                                else again <= 1'b1;  // a partial acknowledgement
                            end
                        end else begin
                            if (s_window == 16'd0 && tries > 4'd6) tries <= 4'd6;  // it lives, and has no room
                            if (repeats && !recovering) begin
                                dups <= dups + 2'd1;
                                if (dups == 2'd2) begin
                                    dups       <= 2'd0;
                                    again      <= 1'b1;
                                    recovering <= 1'b1;
                                    recover    <= snd_max;
                                end
                            end
                        end
                        // A byte before the next one is a probe: of the session, or of a closed window.
                        if (s_length != 16'd0 || s_flags[FIN] || s_seq + 32'd1 == rcv_nxt) ack_due <= 1'b1;
                        rcv_nxt <= rcv_nxt + (feed ? {16'd0, s_length} : 32'd0) + {31'd0, fin_now};
                        if (feed) begun <= 1'b1;
                        if (fin_acked) fin_done <= 1'b1;
                        if (fin_now) fin_in <= 1'b1;
                        if (fin_now || skips) fin_due <= 1'b1;
                        if (ends) begin
                            e_state <= E_CLOSE;
                            if (fin_now && !reply_due) begin
                                reply_due <= 1'b1;
                                reply <= {3'd4, s_mac, s_ip, s_port, 32'd0, s_ack, s_next, s_own, 8'h10, 16'd0, 1'b0};
                            end
                        end
                    end
                end
                RESULT: begin
                    e_state   <= E_WRITE;
                    under_way <= under_way - 3'd1;
                    promised  <= promised - SEG_RECORDS;
                    if (appends) begin
                        if (held == 0) head <= w_head;
                        if (held == flight) next <= w_head;
                        tail    <= w_tail;
                        held    <= held + w_count;
                        snd_end <= snd_end + {16'd0, w_all};
                    end
                end
                SEND: e_state <= E_SEND;
                default: begin  // TIMER
                    e_state <= E_IDLE;
                    if (used && late) begin  // from the oldest one on
                        e_state    <= tries == 4'd10 ? E_CLOSE : E_WRITE;
                        tries      <= tries + 4'd1;
                        due        <= next_due;
                        flight     <= {(POOL_W + 1) {1'b0}};
                        next       <= head;
                        next_seq   <= head_seq;
                        fin_out    <= 1'b0;
                        blocked    <= 1'b0;
                        again      <= 1'b0;
                        recovering <= 1'b0;
                        dups       <= 2'd0;
                        force_one  <= window != 16'd0;
                        probe      <= window == 16'd0;
                    end else if (used && evicts) e_state <= E_CLOSE;
                    else if (used && shut && rooms != 4'd0) begin  // the window opens again
                        ack_due <= 1'b1;
                        e_state <= E_WRITE;
                    end
                end
            endcase
            E_FREE: if (frees) begin  // one buffer per clock
                head     <= after;
                head_seq <= head_seq + {16'd0, record_bytes};
                held     <= held - 1'b1;
                if (flight != 0) flight <= flight - 1'b1;
                else begin
                    next     <= after;
                    next_seq <= head_seq + {16'd0, record_bytes};
                end
            end else if (!freed) begin
                if (shut && rooms != 4'd0) ack_due <= 1'b1;
                if (held == 0) again <= 1'b0;
                e_state <= E_WRITE;
            end
            E_SEND: begin
                e_state <= E_WRITE;
                queued  <= 1'b0;
                if (used && (x_data || x_fin || acks)) begin
                    meta_valid <= 1'b1;
                    meta <= {
                        3'd4, mac, ip, port, x_data ? x_bytes : 16'd0,
                        x_probe ? {record[7:0], 8'd0} : x_data ? record[23:8] : 16'd0,
                        x_seq, rcv_nxt, cfg_port, x_data ? 8'h18 : x_fin ? 8'h11 : 8'h10, x_window, 1'b0
                    };
                    ack_due <= 1'b0;
                    shut    <= rooms == 4'd0;
                    if ($signed(x_end - snd_max) > 0) snd_max <= x_end;
                    if (x_data) begin
                        t_buffer <= x_again ? head : next;
                        t_word   <= {BUFFER_W {1'b0}};
                        t_left   <= (x_bytes + W - 1) >> LOG;
                    end
                    if (x_again) begin
                        again <= 1'b0;
                        due   <= next_due;
                    end
                    if (x_next) begin
                        next      <= after;
                        next_seq  <= x_end;
                        flight    <= flight + 1'b1;
                        force_one <= 1'b0;
                        if (flight == 0) due <= next_due;
                    end
                    if (x_probe) begin
                        t_single <= 1'b1;
                        probe    <= 1'b0;
                        blocked  <= 1'b1;
                    end
                    if (x_fin) begin
                        fin_out <= 1'b1;
                        due     <= next_due;
                    end
                end
                // It waits for the peer's window, at most until the timer.
                if (!x_data && held != flight) begin
                    blocked <= 1'b1;
                    if (!blocked && flight == 0) due <= next_due;
                end
            end
            E_WRITE: begin
                queued  <= queued || wants;
                e_state <= op == FIND && r_state == R_OPEN ? E_DO : E_IDLE;
            end
            // --- a session ends ----------------------------------------------------------------------
            E_CLOSE: if (closes) e_state <= E_UNLINK;
            E_UNLINK: begin
                previous <= bucket[SW-1:0];
                e_state <= bucket[SW-1:0] == at ? E_GONE : E_BEFORE;
            end
            E_BEFORE: begin
                previous <= key_link;
                if (!key_linked || key_link == at) e_state <= E_GONE;
            end
            default: e_state <= E_IDLE;
        endcase
        if (e_state == E_UNLINK || e_state == E_CLOSE) begin
            used <= 1'b0;
            held <= e_state == E_UNLINK ? {(POOL_W + 1) {1'b0}} : held;
        end
        if (rst) begin
            e_state     <= E_CLEAR;
            clear       <= {HW {1'b0}};
            fresh       <= {(SW + 1) {1'b0}};
            now         <= 32'd0;
            ticks       <= 32'd1;
            r_state     <= R_IDLE;
            w_state     <= W_IDLE;
            w_has       <= 1'b0;
            t_left      <= 16'd0;
            t_single    <= 1'b0;
            meta_valid  <= 1'b0;
            beat_valid  <= 1'b0;
            reply_due   <= 1'b0;
            w_sum1      <= 1'b0;
            w_sum2      <= 1'b0;
            sweeping    <= 1'b0;
            pressed     <= 1'b0;
            refuses     <= 1'b0;
            spare_valid <= 1'b0;
            unused      <= {(POOL_W + 1) {1'b0}};
            listed      <= {(POOL_W + 1) {1'b0}};
            taken       <= {(POOL_W + 2) {1'b0}};
            promised    <= {(POOL_W + 2) {1'b0}};
        end
    end
`undef N3IC_STATE
endmodule
/* verilator lint_on WIDTH */
