// SPDX-License-Identifier: Apache-2.0
// A cluster node. It receives task packets from its predecessor, computes the neurons, or the columns
// of a matrix, whose weights it holds, and sends other packets and its results to its successor. The
// ports are AXI4-Streams of 256 bits, as in the NetFPGA-SUME reference NIC. The driver writes settings
// and weights through wr_*; bits 31:28 of the address select the kind
// (docs/reference/cluster-node.md).
module n3ic_cluster_node #(
    parameter ROW_W    = 12,  // 2^ROW_W rows of 512 weights
    parameter NEURON_W = 10,  // 2^NEURON_W thresholds
    parameter SLOT_W   = 4,   // 2^SLOT_W rows in flight
    parameter WORDS_W  = 7,   // 2^WORDS_W input words
    parameter QUEUE_W  = 8,   // 2^QUEUE_W packets wait for the successor
    parameter MASKED   = 0,   // 1: a memory of masks, as large as that of the weights
    // An array of multipliers instead of the binary layer
    parameter GEMM     = 0,   // 1: 2^ROW_W rows of 16 weights of COLUMNS columns each
    parameter COLUMNS  = 4,
    parameter WEIGHT_W = 8,
    parameter SPARSE   = 0,
    parameter MAXIMUM  = 0
) (
    input  wire         axis_aclk,
    input  wire         axis_resetn,
    input  wire         tick,        // high for one clock each millisecond
    output wire         idle,        // nothing moves until a frame or a tick comes
    output wire [255:0] counters,    // 8 of 32 bits, the first lowest (listed at the end)
    input  wire         wr_en,
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire [31:0]  wr_addr,
    /* verilator lint_on UNUSEDSIGNAL */
    input  wire [31:0]  wr_data,
    input  wire [255:0] s_axis_tdata,
    input  wire [31:0]  s_axis_tkeep,
    input  wire         s_axis_tvalid,
    output wire         s_axis_tready,
    input  wire         s_axis_tlast,
    output wire [255:0] m_axis_tdata,
    output wire [31:0]  m_axis_tkeep,
    output wire         m_axis_tvalid,
    input  wire         m_axis_tready,
    output wire         m_axis_tlast
);
    localparam INPUT_W = SLOT_W + WORDS_W - 4;
    localparam BEATS   = 5;
    wire clk = axis_aclk;
    reg  rst = 1'b1;
    always @(posedge clk) rst <= !axis_resetn;

    // --- what the driver writes -----------------------------------------------------------------
    // 16 words of settings, then the STATUS packet, which describes the share, then the nodes that
    // take the rows of the next layer in turn, then the sizes of a matrix.
    reg [31:0] settings [0:15];
    reg [31:0] share [0:15];
    reg [7:0]  replicas [0:15];
    /* verilator lint_off UNUSEDSIGNAL */
    reg [31:0] matrix [0:3];  // rows of weights, windows of an input, slices between them
    /* verilator lint_on UNUSEDSIGNAL */
    wire wr_setting = wr_en && wr_addr[31:28] == 4'd0;
    always @(posedge clk) begin
        if (wr_setting && wr_addr[5:4] == 2'd0) settings[wr_addr[3:0]] <= wr_data;
        if (wr_setting && wr_addr[5:4] == 2'd1) share[wr_addr[3:0]] <= wr_data;
        if (wr_setting && wr_addr[5:4] == 2'd2) replicas[wr_addr[3:0]] <= wr_data[7:0];
        if (wr_setting && wr_addr[5:4] == 2'd3) matrix[wr_addr[1:0]] <= wr_data;
    end
    // Addresses are {MAC, IPv4, UDP port}.
    wire [95:0] own_at         = {settings[0], settings[1], settings[2]};
    wire [95:0] predecessor_at = {settings[3], settings[4], settings[5]};
    wire [95:0] successor_at   = {settings[6], settings[7], settings[8]};
    /* verilator lint_off UNUSEDSIGNAL */
    wire [31:0] numbers        = settings[9];   // node, predecessor, successor
    wire [31:0] timeout        = settings[10];  // ticks
    wire [31:0] leaving        = settings[11];  // identifier, destination, array, mode
    wire [31:0] out_end        = settings[12];
    wire [31:0] neurons        = settings[13];  // computed for each row
    wire [31:0] turns          = settings[15];  // replicas of the next layer, 0 for none
    wire [31:0] place          = share[3];
    wire [31:0] words          = share[14];     // of an input
    /* verilator lint_on UNUSEDSIGNAL */
    wire [7:0]  node        = numbers[31:24];
    wire [7:0]  predecessor = numbers[23:16];
    wire [7:0]  successor   = numbers[15:8];
    wire [7:0]  array       = share[0][7:0];
    wire        by_inputs   = share[12] == 32'd2;
    wire [511:0] status_packet = {
        share[0], share[1], share[2], share[3], share[4], share[5], share[6], share[7],
        share[8], share[9], share[10], share[11], share[12], share[13], share[14], share[15]
    };

    // --- frames and datagrams ---------------------------------------------------------------------
    wire arp, udp, udp_taken, rx_bad, rx_idle;
    wire [47:0] from_mac;
    wire [31:0] from_ip;
    wire [15:0] length;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [256*BEATS-1:0] frame;
    /* verilator lint_on UNUSEDSIGNAL */
    n3ic_cluster_rx #(.BEATS(BEATS)) rx (
        .clk(clk), .rst(rst), .mac(own_at[95:48]), .ip(own_at[47:16]), .port(own_at[15:0]),
        .s_axis_tdata(s_axis_tdata), .s_axis_tkeep(s_axis_tkeep), .s_axis_tvalid(s_axis_tvalid),
        .s_axis_tready(s_axis_tready), .s_axis_tlast(s_axis_tlast), .arp_valid(arp),
        .udp_valid(udp), .taken(arp || udp_taken), .from_mac(from_mac), .from_ip(from_ip),
        .length(length), .frame(frame), .bad(rx_bad), .idle(rx_idle)
    );
    wire        came, came_taken, begins, acknowledges, carries, datagram_bad;
    wire [31:0] came_session, sequence_, acknowledge, selective;
    wire [7:0]  sender, receiver;
    wire [511:0] came_packet;
    n3ic_cluster_datagram datagram (
        .clk(clk), .rst(rst), .in_valid(udp), .in_taken(udp_taken), .in_length(length),
        .in_payload(frame[1055:336]), .out_valid(came), .out_taken(came_taken), .begins(begins),
        .acknowledges(acknowledges), .carries(carries), .session(came_session), .sender(sender),
        .receiver(receiver), .sequence_(sequence_), .acknowledge(acknowledge),
        .selective(selective), .packet(came_packet), .bad(datagram_bad)
    );
    wire        task_valid, task_done, task_refused, clear, status, reply, acknowledged;
    wire        stray, again, refused, receive_idle;
    wire [31:0] session, expected, arrived;
    wire [511:0] packet;
    n3ic_cluster_receive receive (
        .clk(clk), .rst(rst), .node(node), .predecessor(predecessor), .successor(successor),
        .in_valid(came), .in_taken(came_taken), .begins(begins), .acknowledges(acknowledges),
        .carries(carries), .in_session(came_session), .sender(sender), .receiver(receiver),
        .sequence_(sequence_), .in_packet(came_packet), .task_valid(task_valid),
        .packet(packet), .task_done(task_done), .task_refused(task_refused), .session(session),
        .clear(clear), .status(status), .idle(receive_idle), .expected(expected),
        .selective(arrived), .reply(reply), .acknowledged(acknowledged), .stray(stray),
        .again(again), .refused(refused)
    );
    wire restart = rst || clear;

    // --- tasks ------------------------------------------------------------------------------------
    wire               room, task_push, task_bad, stored, row_complete, row_done;
    wire [511:0]       task_packet;
    wire [15:0]        in_en, in_next, complete_row, row;
    wire [INPUT_W-1:0] in_row, in_next_row;
    wire [511:0]       in_bits;
    n3ic_cluster_tasks #(.SLOT_W(SLOT_W), .WORDS_W(WORDS_W), .VALUES(GEMM)) tasks (
        .clk(clk), .rst(restart), .node(node), .array(array), .start(share[1]), .end_(share[2]),
        .by_inputs(by_inputs), .first_word(place[11:0]), .words(words[11:0]), .pad(settings[14]),
        .in_valid(task_valid), .packet(packet), .done(task_done), .refused(task_refused),
        .bad(task_bad), .stored(stored), .room(room), .push(task_push),
        .push_packet(task_packet), .in_en(in_en), .in_next(in_next), .in_row(in_row),
        .in_next_row(in_next_row), .in_bits(in_bits), .ask_valid(row_complete),
        .ask_row(complete_row), .release_(row_done), .release_slot(row[SLOT_W-1:0])
    );

    // --- complete rows are computed one after another -----------------------------------------------
    reg             computing;
    wire [SLOT_W:0] waiting;
    wire            ask = waiting != {(SLOT_W + 1) {1'b0}} && !computing;
    wire            ask_ready;
    n3ic_fifo #(.WIDTH(16), .DEPTH_W(SLOT_W)) rows (
        .clk(clk), .rst(restart), .push(row_complete), .in_data(complete_row), .pop(row_done),
        .out_data(row), .level(waiting)
    );
    always @(posedge clk) begin
        if (ask && ask_ready) computing <= 1'b1;
        if (row_done || restart) computing <= 1'b0;
    end
    wire        found_valid, found_ends, found_last, found_fires;
    wire [31:0] found;
    generate
        if (GEMM != 0) begin : g_gemm
            assign found_fires = 1'b0;
            n3ic_cluster_gemm #(
                .COLUMNS(COLUMNS), .WEIGHT_W(WEIGHT_W), .ROW_W(ROW_W), .INPUT_W(INPUT_W),
                .SPARSE(SPARSE), .MAXIMUM(MAXIMUM)
            ) gemm (
                .clk(clk), .rst(restart), .in_en(in_en), .in_next(in_next), .in_row(in_row),
                .in_next_row(in_next_row), .in_bits(in_bits), .ask_valid(ask),
                .ask_ready(ask_ready), .ask_rows(matrix[0][ROW_W:0]),
                .ask_columns(neurons[15:0]),
                .ask_input({row[SLOT_W-1:0], {(WORDS_W - 4) {1'b0}}}),
                .ask_windows(matrix[1][15:0]), .ask_step(matrix[2][INPUT_W-1:0]),
                .out_valid(found_valid), .out_ready(found_ready), .out_ends(found_ends),
                .out_last(found_last), .out_word(found),
                .wr_weight(wr_en && wr_addr[31:28] == 4'd1),
                .wr_slice(wr_en && wr_addr[31:28] == 4'd2), .wr_row(wr_addr[8 +: ROW_W]),
                .wr_word(wr_addr[7:0]), .wr_data(wr_data)
            );
        end else begin : g_layer
            wire        result, result_last, result_fires;
            wire [31:0] result_sum, result_score;
            wire [5:0]  results_wait;
            /* verilator lint_off UNUSEDSIGNAL */
            wire [7:0]  rounded = words[7:0] + 8'd15;
            /* verilator lint_on UNUSEDSIGNAL */
            assign found_valid = results_wait != 6'd0;
            assign found_ends  = found_last;
            n3ic_cluster_layer #(
                .SLICE(512), .ROW_W(ROW_W), .NEURON_W(NEURON_W), .INPUT_W(INPUT_W), .SLICE_W(4),
                .MASKED(MASKED)
            ) layer (
                .clk(clk), .rst(restart), .in_en(in_en), .in_next(in_next), .in_row(in_row),
                .in_next_row(in_next_row), .in_bits(in_bits), .ask_valid(ask),
                .ask_ready(ask_ready), .ask_row({ROW_W {1'b0}}), .ask_neuron({NEURON_W {1'b0}}),
                .ask_count(neurons[NEURON_W:0]),
                .ask_input({row[SLOT_W-1:0], {(WORDS_W - 4) {1'b0}}}),
                .ask_slices(rounded[7:4]), .room(results_wait[5:4] == 2'd0), .out_valid(result),
                .out_last(result_last), .out_fires(result_fires), .out_sum(result_sum),
                .out_score(result_score), .wr_weight(wr_en && wr_addr[31:28] == 4'd1),
                .wr_bound(wr_en && wr_addr[31:28] == 4'd2),
                .wr_mask(wr_en && wr_addr[31:28] == 4'd3), .wr_row(wr_addr[4 +: ROW_W]),
                .wr_word({4'd0, wr_addr[3:0]}), .wr_data(wr_data)
            );
            n3ic_fifo #(.WIDTH(34), .DEPTH_W(5)) results (
                .clk(clk), .rst(restart), .push(result),
                .in_data({result_last, result_fires, leaving[1] ? result_sum : result_score}),
                .pop(found_ready && found_valid), .out_data({found_last, found_fires, found}),
                .level(results_wait)
            );
        end
    endgenerate
    wire         found_ready, packed_valid, packed_last;
    wire [511:0] packed_;
    wire         turn_ready;
    wire [3:0]   turn;
    n3ic_cluster_turn whose (
        .clk(clk), .rst(restart), .start(ask && ask_ready), .row(row), .count(turns[4:0]),
        .ready(turn_ready), .turn(turn)
    );
    wire [7:0]   out_destination = (GEMM != 0 || turns == 32'd0) ? leaving[23:16] : replicas[turn];
    // Results wait for the task handler, which may push up to three packets for one that it takes.
    wire         packed_ready = room && turn_ready && !task_valid && !status && !restart;
    assign row_done     = packed_valid && packed_ready && packed_last;
    n3ic_cluster_results packager (
        .clk(clk), .rst(restart), .mode(leaving[1:0]), .wide(GEMM != 0), .array(array), .start(share[1]),
        .first_word(place[11:0]), .out_identifier(leaving[31:24]),
        .out_destination(out_destination), .out_array(leaving[15:8]), .out_end(out_end),
        .row(row), .in_valid(found_valid), .in_ready(found_ready), .in_ends(found_ends),
        .in_last(found_last),
        .in_fires(found_fires), .in_value(found), .out_valid(packed_valid),
        .out_ready(packed_ready), .out_last(packed_last), .out_packet(packed_)
    );

    // --- what leaves ------------------------------------------------------------------------------
    wire         send_valid, send_taken, send_idle, resent, reply_idle, tx_valid, tx_ready;
    wire         tx_arp;
    wire [31:0]  send_sequence;
    wire [511:0] send_packet;
    wire [95:0]  tx_to;
    wire [15:0]  tx_length;
    wire [943:0] tx_payload;
    n3ic_cluster_send #(.DEPTH_W(QUEUE_W)) send (
        .clk(clk), .rst(restart), .tick(tick), .timeout(timeout[15:0]),
        .push(task_push || status || (packed_valid && packed_ready)),
        .push_packet(task_push ? task_packet : status ? status_packet : packed_),
        .room(room), .idle(send_idle), .ack(acknowledged), .ack_sequence(acknowledge),
        .ack_selective(selective), .out_valid(send_valid), .out_taken(send_taken),
        .out_sequence(send_sequence), .out_packet(send_packet), .resent(resent)
    );
    n3ic_cluster_reply replies (
        .clk(clk), .rst(rst), .node(node), .session(session), .predecessor(predecessor),
        .predecessor_at(predecessor_at), .successor(successor), .successor_at(successor_at),
        .arp(arp), .arp_to({from_mac, from_ip}), .ack(reply), .expected(expected),
        .arrived(arrived),
        // While a session begins, the offered packet still belongs to the old session.
        .send_valid(send_valid && !clear), .send_taken(send_taken),
        .send_sequence(send_sequence), .send_packet(send_packet), .idle(reply_idle), .out_valid(tx_valid),
        .out_ready(tx_ready), .out_arp(tx_arp), .out_to(tx_to), .out_length(tx_length),
        .out_payload(tx_payload)
    );
    n3ic_cluster_tx #(.BEATS(BEATS)) tx (
        .clk(clk), .rst(rst), .mac(own_at[95:48]), .ip(own_at[47:16]), .port(own_at[15:0]),
        .in_valid(tx_valid), .in_ready(tx_ready), .in_arp(tx_arp), .in_mac(tx_to[95:48]),
        .in_ip(tx_to[47:16]), .in_port(tx_to[15:0]), .in_length(tx_length),
        .in_payload(tx_payload), .m_axis_tdata(m_axis_tdata), .m_axis_tkeep(m_axis_tkeep),
        .m_axis_tvalid(m_axis_tvalid), .m_axis_tready(m_axis_tready), .m_axis_tlast(m_axis_tlast)
    );
    assign idle = rx_idle && !udp && !came && receive_idle && !stored && !row_complete
               && waiting == {(SLOT_W + 1) {1'b0}} && send_idle && reply_idle && tx_ready
               && !reply && !status && !clear && !arp && !acknowledged;

    // Dropped frames, dropped datagrams, strays, duplicates, refused packets, impossible packets,
    // stored tasks, resent datagrams.
    wire [7:0] events = {
        resent, stored, task_bad, refused, again, stray, datagram_bad, rx_bad
    };
    reg  [255:0] counts;
    integer k;
    always @(posedge clk)
        for (k = 0; k < 8; k = k + 1)
            if (rst) counts[32*k +: 32] <= 32'd0;
            else if (events[k]) counts[32*k +: 32] <= counts[32*k +: 32] + 32'd1;
    assign counters = counts;
endmodule
