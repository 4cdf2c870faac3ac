// SPDX-License-Identifier: Apache-2.0
// Parses Ethernet frames into three queues: the beats up to the end of the IPv4 packet, the header
// fields, and, after the last beat, whether checksums and lengths are right. It takes one beat per
// clock, whatever the frame is.
//
// Frames for other receivers leave with kind 0, and the next module drops their beats.
/* verilator lint_off WIDTH */  // loop variables have 32 bits
module n3ic_fe_parse #(
    parameter W       = 64,    // bytes of a beat: 8 or 64
    parameter META_W  = 242,
    parameter MTU     = 1500,  // maximum bytes of an IPv4 packet
    parameter TCP     = 0,
    parameter BEATS_W = 5      // the queue holds 2^BEATS_W beats
) (
    input  wire              clk,
    input  wire              rst,
    input  wire [47:0]       cfg_mac,
    input  wire [31:0]       cfg_ip,
    input  wire [15:0]       cfg_port,
    input  wire [8*W-1:0]    s_axis_tdata,
    input  wire [W-1:0]      s_axis_tkeep,
    input  wire              s_axis_tuser,  // with the last beat: the frame is damaged
    input  wire              s_axis_tvalid,
    output wire              s_axis_tready,
    input  wire              s_axis_tlast,

    output wire              beat_valid,
    output wire [8*W-1:0]    beat_data,
    output wire              beat_last,
    input  wire              beat_pop,
    output wire              meta_valid,
    output wire [META_W-1:0] meta,
    output wire              sound_valid,
    output wire              sound,
    input  wire              meta_pop,  // both

    output wire [5:0]        count  // one bit per frame: the fate of its headers, or damaged
);
    localparam HEADER = 58;              // bytes to inspect: up to the TCP option of the MSS
    localparam HB     = (HEADER - 1) / W;  // the beat of the last one
    localparam FRAMES_W = 5;
    localparam BEAT_W = 14;
    integer i;

    // --- stage 1: a beat, and the header up to it -----------------------------------------
    reg  [8*W-1:0]      data1;
    reg  [W-1:0]        keep1;
    reg                 valid1, last1, error1;
    reg  [BEAT_W-1:0]   beat1, next_beat;
    reg  [8*HEADER-1:0] header;  // byte i of the frame at bits 8*i+7 to 8*i
    wire take = s_axis_tvalid && s_axis_tready;
    always @(posedge clk) begin
        valid1 <= take && !rst;
        if (take) begin
            data1  <= s_axis_tdata;
            keep1  <= s_axis_tkeep;
            last1  <= s_axis_tlast;
            error1 <= s_axis_tuser && s_axis_tlast;
            beat1  <= next_beat;
            for (i = 0; i < HEADER; i = i + 1)
                if (next_beat == i / W) header[8*i +: 8] <= s_axis_tdata[8*(i % W) +: 8];
            next_beat <= s_axis_tlast ? {BEAT_W {1'b0}} : next_beat + !(&next_beat);
        end
        if (rst) next_beat <= {BEAT_W {1'b0}};
    end
    wire        ip1     = header[8*12 +: 16] == 16'h0008;  // EtherType 0x0800, first byte lowest
    wire [16:0] end1    = ip1 ? 17'd14 + {1'b0, header[8*16 +: 8], header[8*17 +: 8]} : 17'd42;
    wire [17:0] base1   = beat1 * W;
    wire [17:0] here1   = {1'b0, end1} - base1;  // bytes of the packet from this beat on
    wire        past1   = base1 >= {1'b0, end1};
    wire        whole1  = past1 || here1 <= W;
    /* verilator lint_off UNSIGNED */
    wire        looked1 = beat1 >= HB;
    /* verilator lint_on UNSIGNED */
    wire        ends1   = last1 || (looked1 && whole1);
    wire        push1   = valid1 && (!looked1 || beat1 == HB || !past1);
    // Of a frame's last beat: whether it ends before its packet.
    reg         short1;
    reg [8*W-1:0] masked1;  // of the IPv4 packet's payload
    always @* begin
        short1 = 1'b0;
        for (i = 0; i < W; i = i + 1) begin
            if (!past1 && i < here1 && !keep1[i]) short1 = 1'b1;
            masked1[8*i +: 8] = (base1 + i >= 34) && !past1 && i < here1 ? data1[8*i +: 8] : 8'd0;
        end
        if (!past1 && here1 > W) short1 = 1'b1;
    end

    // --- stage 2: the header is complete; the words are added up ----------------------------
    reg  [8*HEADER-1:0]  header2;
    reg                  valid2, first2, last2, bad2, meta2, runt2;
    always @(posedge clk) begin
        valid2 <= valid1 && !rst;
        first2 <= beat1 == {BEAT_W {1'b0}};
        last2  <= last1;
        bad2   <= error1 || short1 || !looked1;
        meta2  <= valid1 && (beat1 == HB || (last1 && !looked1)) && !rst;
        runt2  <= !looked1;
        if (valid1 && beat1 <= HB) header2 <= header;
    end
    // Fields, their first byte highest.
    /* verilator lint_off UNUSEDSIGNAL */
    wire [8*HEADER-1:0] h;
    /* verilator lint_on UNUSEDSIGNAL */
    genvar g;
    generate
        for (g = 0; g < HEADER; g = g + 1) begin : g_turn
            assign h[8*(HEADER - 1 - g) +: 8] = header2[8*g +: 8];
        end
    endgenerate
`define N3IC_FIELD(first, bytes) h[8*(HEADER - (first) - (bytes)) +: 8*(bytes)]
    wire [47:0] to_mac   = `N3IC_FIELD(0, 6);
    wire [47:0] from_mac = `N3IC_FIELD(6, 6);
    wire [15:0] kind     = `N3IC_FIELD(12, 2);
    wire [15:0] ip_bytes = `N3IC_FIELD(16, 2);
    wire [31:0] from_ip  = `N3IC_FIELD(26, 4);
    wire [31:0] to_ip    = `N3IC_FIELD(30, 4);
    wire [7:0]  protocol = `N3IC_FIELD(23, 1);
    /* verilator lint_off UNUSEDSIGNAL */
    wire [7:0]  words4   = `N3IC_FIELD(46, 1);
    wire [5:0]  offset   = {words4[7:4], 2'b00};  // bytes of the TCP header
    /* verilator lint_on UNUSEDSIGNAL */
    wire [15:0] inner   = ip_bytes - 16'd20;

    // --- stage 3: checks ---------------------------------------------------------------------
    wire [22:0] sum3;
    n3ic_fe_sum #(.W(W)) words3 (.clk(clk), .data(masked1), .sum(sum3));
    reg         valid3, first3, last3, bad3, meta3, runt3;
    reg  [19:0] ip_sum3, pseudo3, pseudo4;
    reg         checked3, checked4, folded_in3, folded_in4;
    reg         arp3, ip3, mine3, whole_ip3, source3, icmp3, udp3, tcp3;
    reg  [META_W-27:0] fields3;
    reg  [6:0]  start3;
    reg  [15:0] length3;
    always @(posedge clk) begin
        valid3 <= valid2 && !rst;
        first3 <= first2;
        last3  <= last2;
        bad3   <= bad2;
        meta3  <= meta2 && !rst;
        if (meta2) begin
            runt3   <= runt2;
            ip_sum3 <= {4'd0, `N3IC_FIELD(14, 2)} + {4'd0, `N3IC_FIELD(16, 2)} + {4'd0, `N3IC_FIELD(18, 2)}
                + {4'd0, `N3IC_FIELD(20, 2)} + {4'd0, `N3IC_FIELD(22, 2)} + {4'd0, `N3IC_FIELD(24, 2)}
                + {4'd0, `N3IC_FIELD(26, 2)} + {4'd0, `N3IC_FIELD(28, 2)} + {4'd0, `N3IC_FIELD(30, 2)}
                + {4'd0, `N3IC_FIELD(32, 2)};
            pseudo3 <= {4'd0, `N3IC_FIELD(26, 2)} + {4'd0, `N3IC_FIELD(28, 2)} + {4'd0, `N3IC_FIELD(30, 2)}
                + {4'd0, `N3IC_FIELD(32, 2)} + {12'd0, protocol} + {4'd0, inner};
            checked3 <= kind == 16'h0800 && !(protocol == 8'd17 && `N3IC_FIELD(40, 2) == 16'd0);
            folded_in3 <= protocol != 8'd1;
            arp3 <= kind == 16'h0806 && `N3IC_FIELD(14, 8) == 64'h0001_0800_0604_0001
                && `N3IC_FIELD(38, 4) == cfg_ip && `N3IC_FIELD(28, 4) != cfg_ip
                && `N3IC_FIELD(22, 6) == from_mac && (to_mac == cfg_mac || &to_mac) && !from_mac[40];
            ip3  <= kind == 16'h0800 && to_mac == cfg_mac && !from_mac[40];
            mine3 <= to_ip == cfg_ip;
            // No options, no fragment, and no longer than the MTU.
            whole_ip3 <= `N3IC_FIELD(14, 1) == 8'h45 && (`N3IC_FIELD(20, 2) & 16'h3fff) == 16'd0
                && ip_bytes <= MTU;
            // The answer must go to one host: not to this card, to a group, or to no address.
            source3 <= from_ip != cfg_ip && from_ip[31:24] != 8'd0 && from_ip[31:24] != 8'd127
                && from_ip[31:29] != 3'b111;
            icmp3 <= protocol == 8'd1 && `N3IC_FIELD(34, 2) == 16'h0800 && ip_bytes >= 16'd28;
            udp3 <= protocol == 8'd17 && `N3IC_FIELD(38, 2) == inner && ip_bytes >= 16'd28
                && `N3IC_FIELD(36, 2) == cfg_port && `N3IC_FIELD(34, 2) != 16'd0;
            tcp3 <= TCP != 0 && protocol == 8'd6 && offset >= 6'd20 && inner >= {10'd0, offset}
                && `N3IC_FIELD(34, 2) != 16'd0;
            // The payload begins after the UDP or TCP header; that of an echo after its checksum.
            start3  <= kind == 16'h0806 ? 7'd42 : protocol == 8'd1 ? 7'd38 : protocol == 8'd17 ? 7'd42
                : 7'd34 + {1'b0, offset};
            length3 <= kind == 16'h0806 ? 16'd0 : protocol == 8'd1 ? inner - 16'd4
                : protocol == 8'd17 ? inner - 16'd8 : inner - {10'd0, offset};
            fields3 <= {
                from_mac, kind == 16'h0806 ? `N3IC_FIELD(28, 4) : from_ip,
                `N3IC_FIELD(34, 2),                  // their port
                `N3IC_FIELD(36, 2),                  // ours
                `N3IC_FIELD(38, 4), `N3IC_FIELD(42, 4),  // sequence and acknowledgement numbers
                `N3IC_FIELD(47, 1), `N3IC_FIELD(48, 2),  // flags, window
                offset > 6'd20 && `N3IC_FIELD(54, 2) == 16'h0204 ? `N3IC_FIELD(56, 2) : 16'd536  // MSS
            };
        end
    end
`undef N3IC_FIELD

    // --- stage 4: what the frame is, and its sum so far -----------------------------------
    wire [16:0] ip_fold3 = {1'b0, ip_sum3[15:0]} + {13'd0, ip_sum3[19:16]};
    wire        ip_ok3   = ip_fold3 == 17'h0ffff || ip_fold3 == 17'h1fffe;
    wire        here3    = ip3 && mine3 && !runt3;
    wire        good3    = here3 && whole_ip3 && ip_ok3 && source3;
    wire [2:0]  what3    = arp3 && !runt3 ? 3'd1 : !good3 ? 3'd0 : icmp3 ? 3'd2 : udp3 ? 3'd3 : tcp3 ? 3'd4 : 3'd0;
    reg  [31:0] sum4;
    reg         last4, bad4, valid4;
    always @(posedge clk) begin
        valid4 <= valid3 && !rst;
        last4  <= last3;
        bad4   <= bad3;
        if (valid3) sum4 <= (first3 ? 32'd0 : sum4) + {9'd0, sum3};
        if (meta3) begin
            pseudo4    <= pseudo3;
            checked4   <= checked3;
            folded_in4 <= folded_in3;
        end
    end

    // --- stage 5: fold -----------------------------------------------------------------------
    reg  [16:0] fold5;
    reg         valid5, bad5, checked5;
    wire [31:0] all4 = sum4 + (folded_in4 ? {12'd0, pseudo4} : 32'd0);
    wire [16:0] half4 = {1'b0, all4[15:0]} + {1'b0, all4[31:16]};
    always @(posedge clk) begin
        valid5   <= valid4 && last4 && !rst;
        bad5     <= bad4;
        checked5 <= checked4;
        fold5    <= half4;
    end
    wire [15:0] sum5   = fold5[15:0] + {15'd0, fold5[16]};
    wire        sound5 = !bad5 && (!checked5 || sum5 == 16'hffff);

    // The fate of the headers: for another receiver; header damaged; fragment, options or too long;
    // from no host or to no port; accepted. The last bit: damaged at its end.
    assign count = {
        valid5 && !sound5,
        meta3 && what3 != 3'd0,
        meta3 && (good3 && what3 == 3'd0 || here3 && whole_ip3 && ip_ok3 && !source3),
        meta3 && here3 && ip_ok3 && !whole_ip3,
        meta3 && (runt3 || here3 && !ip_ok3),
        meta3 && !runt3 && !here3 && what3 == 3'd0
    };

    // --- queues ------------------------------------------------------------------------------
    wire [BEATS_W:0]  beats;
    wire [FRAMES_W:0] frames;
    n3ic_fe_fifo #(.WIDTH(8*W + 1), .DEPTH_W(BEATS_W)) beat_queue (
        .clk(clk), .rst(rst), .push(push1), .in_data({data1, ends1}),
        .out_valid(beat_valid), .out_data({beat_data, beat_last}), .pop(beat_pop), .level(beats)
    );
    n3ic_fe_fifo #(.WIDTH(META_W), .DEPTH_W(FRAMES_W)) meta_queue (
        .clk(clk), .rst(rst), .push(meta3), .in_data({what3, start3, length3, fields3}),
        .out_valid(meta_valid), .out_data(meta), .pop(meta_pop), .level(frames)
    );
    /* verilator lint_off UNUSEDSIGNAL */
    wire [FRAMES_W:0] sounds;
    /* verilator lint_on UNUSEDSIGNAL */
    n3ic_fe_fifo #(.WIDTH(1), .DEPTH_W(FRAMES_W)) sound_queue (
        .clk(clk), .rst(rst), .push(valid5), .in_data(sound5),
        .out_valid(sound_valid), .out_data(sound), .pop(meta_pop), .level(sounds)
    );
    // The queue must have room for the beats in the stages, which cannot stop.
    assign s_axis_tready = beats < (1 << BEATS_W) - 4 && frames < (1 << FRAMES_W) - 8 && !rst;
endmodule
/* verilator lint_on WIDTH */
