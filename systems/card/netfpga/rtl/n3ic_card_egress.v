// SPDX-License-Identifier: Apache-2.0
// Sends packets, one beat per clock. Queues with a ready packet take turns of one packet each, and
// answers are written into requests. A queue is read only when its next packet has its results, so
// a tenant whose results are late delays nobody else's packets.
module n3ic_card_egress #(
    parameter QUEUES    = 3,   // the last one is that of packets that name no graph
    parameter QUEUE_W   = 2,
    parameter BEATS_W   = 7,
    parameter TEXT      = 10,  // bytes that are written: results of ten bytes each, and a head
    parameter TEXT_AT   = 16,  // the first of them
    parameter UDP       = 0
) (
    input  wire                clk,
    input  wire                rst,
    input  wire [QUEUES-1:0]   ready,
    output wire                leave,        // the next packet of a queue is taken up
    output reg  [QUEUE_W-1:0]  leave_queue,
    input  wire [BEATS_W:0]    leave_beats,
    // Its answer, one clock later
    input  wire [8*TEXT-1:0]   answer,       // its first byte highest
    input  wire [7:0]          answer_to,    // destination ports; 0 keeps the packet's own
    input  wire [7:0]          answer_copy,  // additional destination ports
    input  wire                answer_drop,
    output wire                step,         // the path moves on
    // Beats of the store
    output wire                rd_en,
    output wire                rd_move,
    output reg  [QUEUE_W-1:0]  rd_queue,
    input  wire [416:0]        rd_beat,
    output reg  [255:0]        m_axis_tdata,
    output reg  [31:0]         m_axis_tkeep,
    output reg  [127:0]        m_axis_tuser,
    output reg                 m_axis_tvalid,
    input  wire                m_axis_tready,
    output reg                 m_axis_tlast
);
    localparam OTHERS = QUEUES - 1;

    // --- a packet is taken up, and read beat by beat ----------------------------------------------
    reg  [BEATS_W:0]  left;
    wire              reading = left != {(BEATS_W + 1) {1'b0}};
    wire              is_last = left == {{BEATS_W {1'b0}}, 1'b1};
    wire [QUEUES-1:0] turn;
    assign step    = !m_axis_tvalid || m_axis_tready;
    assign leave   = step && (!reading || is_last) && |ready;
    assign rd_en   = step;
    assign rd_move = step && reading;
    n3ic_card_turns #(.N(QUEUES)) turns (
        .clk(clk), .rst(rst), .asks(ready), .taken(leave), .turn(turn)
    );
    integer i;
    always @* begin
        leave_queue = {QUEUE_W {1'b0}};
        for (i = 0; i < QUEUES; i = i + 1) if (turn[i]) leave_queue = leave_queue | i[QUEUE_W-1:0];
    end
    reg               has_beat, first_beat, of_graph;
    reg [7:0]         at;  // index of the beat, stops at 255
    reg               first;
    always @(posedge clk) begin
        if (step) begin
            left <= leave ? leave_beats : reading ? left - 1'b1 : left;
            if (leave) rd_queue <= leave_queue;
            has_beat   <= reading;
            first      <= leave;
            first_beat <= first;
            of_graph   <= rd_queue != OTHERS[QUEUE_W-1:0];
        end
        if (rst) begin
            left     <= {(BEATS_W + 1) {1'b0}};
            has_beat <= 1'b0;
            first    <= 1'b0;
        end
    end

    // --- the answer is written into its beats --------------------------------------------------------
    reg  [8*TEXT-1:0]     text;
    reg  [7:0]            to, copy;
    reg                   drop;
    wire [7:0]   beat_at = first_beat ? 8'd0 : at;
    reg  [255:0] data;
    reg  [127:0] user;
    integer k;
    always @* begin
        data = rd_beat[255:0];
        user = rd_beat[415:288];
        if (of_graph) begin
            for (k = 0; k < TEXT; k = k + 1)
                if ({24'd0, beat_at} == (TEXT_AT + k) / 32)
                    data[8*((TEXT_AT+k)%32) +: 8] = text[8*(TEXT-1-k) +: 8];
            // The answer invalidates the UDP checksum; zero means that there is none (RFC 768).
            if (UDP != 0 && beat_at == 8'd1) data[8*8 +: 16] = 16'd0;
            if (to != 8'd0) user[31:24] = to;
            user[31:24] = user[31:24] | copy;
        end
    end
    always @(posedge clk) begin
        if (step) begin
            if (first) begin
                text <= answer;
                to   <= answer_to;
                copy <= answer_copy;
                drop <= answer_drop;
            end
            at            <= (beat_at == 8'd255) ? beat_at : beat_at + 8'd1;
            m_axis_tdata  <= data;
            m_axis_tkeep  <= rd_beat[287:256];
            m_axis_tuser  <= user;
            m_axis_tlast  <= rd_beat[416];
            m_axis_tvalid <= has_beat && !(of_graph && drop) && !rst;
        end
        if (rst) m_axis_tvalid <= 1'b0;
    end
endmodule
