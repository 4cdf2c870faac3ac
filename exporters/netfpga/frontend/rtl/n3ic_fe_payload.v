// SPDX-License-Identifier: Apache-2.0
// Turns a frame's beats into its payload, aligned to the first byte of a beat, with its header
// fields. The last beat says whether the frame is sound.
//
// With BYPASS the payload leaves while the frame still comes in. If the frame turns out damaged, the
// receiver must undo its work. Without BYPASS a frame waits until it is complete, and leaves only if
// it is sound.
/* verilator lint_off WIDTH */  // loop variables have 32 bits
module n3ic_fe_payload #(
    parameter W      = 64,
    parameter CW     = 7,    // bits of a count of 0 to W
    parameter META_W = 242,
    parameter BYPASS = 1
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              beat_valid,
    input  wire [8*W-1:0]    beat_data,
    input  wire              beat_last,
    output wire              beat_pop,
    input  wire              meta_valid,
    input  wire [META_W-1:0] meta,
    input  wire              sound_valid,
    input  wire              sound,
    output wire              meta_pop,

    output reg               out_valid,
    input  wire              out_ready,
    output reg               out_first,
    output reg               out_last,
    output reg               out_sound,  // with the last beat
    output reg  [CW-1:0]     out_count,  // number of bytes; the bytes above are 0
    output reg  [8*W-1:0]    out_data,
    output reg  [META_W-1:0] out_meta
);
    localparam LOG = CW - 1;
    integer i;
    wire [2:0]  kind   = meta[META_W-1 -: 3];
    wire [6:0]  start  = meta[META_W-4 -: 7];
    wire [15:0] length = meta[META_W-11 -: 16];

    reg  [8*W-1:0] data;  // the beat before the queue's oldest
    reg            valid, last;
    reg  [6:0]     index;
    reg  [15:0]    left;  // bytes of the payload that have not left
    reg            begun, done;
    wire [6:0]     skip = start >> LOG;
    wire [LOG-1:0] turn = start[LOG-1:0];
    wire           go   = valid && meta_valid;
    // A frame for the card leaves; without the bypass, only after it is known to be sound.
    wire           lost = kind == 3'd0 || (BYPASS == 0 && sound_valid && !sound);
    wire           stall = !lost && BYPASS == 0 && !sound_valid;
    wire [15:0]    now  = begun ? left : length;
    wire           emit = go && !lost && !stall && !done && (begun || index == skip);
    wire           more = !last && now > W - turn;  // it needs the next beat, too
    wire           ends = now <= W || last;
    wire           can  = emit && (!more || beat_valid) && (!ends || sound_valid);
    wire           leave = can && (!out_valid || out_ready);
    // A beat is finished when its bytes have left, or when none of them is to leave.
    wire           used = go && !stall && (emit ? leave : 1'b1) && (!last || sound_valid);
    assign beat_pop = beat_valid && (!valid || used);
    assign meta_pop = used && last;
    wire [16*W-1:0] pair = {more ? beat_data : {8*W {1'b0}}, data};
    reg  [8*W-1:0]  turned;
    always @* begin
        turned = pair >> {turn, 3'b000};
        for (i = 0; i < W; i = i + 1) if (i >= now) turned[8*i +: 8] = 8'd0;
    end
    always @(posedge clk) begin
        if (beat_pop) begin
            data <= beat_data;
            last <= beat_last;
        end
        if (beat_pop) valid <= 1'b1;
        else if (used) valid <= 1'b0;
        if (used) index <= last ? 7'd0 : index + !(&index);
        if (used && last) begin
            begun <= 1'b0;
            done  <= 1'b0;
        end else if (leave) begin
            begun <= 1'b1;
            done  <= ends;
        end
        if (leave) left <= now - W;
        if (leave) begin
            out_valid <= 1'b1;
            out_first <= !begun;
            out_last  <= ends;
            out_sound <= sound;
            out_count <= ends ? now[CW-1:0] : W;
            out_data  <= turned;
            out_meta  <= meta;
        end else if (out_ready) out_valid <= 1'b0;
        if (rst) begin
            valid     <= 1'b0;
            index     <= 7'd0;
            begun     <= 1'b0;
            done      <= 1'b0;
            out_valid <= 1'b0;
        end
    end
endmodule
/* verilator lint_on WIDTH */
