// SPDX-License-Identifier: Apache-2.0
// A cache of key-value pairs in front of a store, in on-board memory: a slot of a word for each key.
// A packet at a time: one access, or two to delete. What it reads where it has no page are zeros, an
// empty slot.
module n3ic_task_memory_cache #(
    parameter HEAD_W = 552,
    parameter SLOT_W = 4  // 2^SLOT_W slots
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              in_valid,
    output wire              in_ready,
    input  wire [HEAD_W-1:0] in_head,
    output reg               out_valid,
    input  wire              out_ready,
    output reg  [HEAD_W-1:0] out_head,
    output reg  [15:0]       out_class,
    // Its port of n3ic_card_memory
    output wire              mem_asks,
    input  wire              mem_taken,
    output wire              mem_write,
    output wire [31:0]       mem_addr,
    output wire [255:0]      mem_word,
    input  wire              mem_answer,
    input  wire              mem_fault,
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire [255:0]      mem_read,
    input  wire [15:0]       rd_addr,
    /* verilator lint_on UNUSEDSIGNAL */
    output reg  [31:0]       rd_data
);
    localparam AT = 8 * 44;  // operation, key, value
    localparam [7:0] GET = 8'd0, SET = 8'd1, FOUND = 8'd2, DELETE = 8'd3;
    localparam [1:0] IDLE = 2'd0, ASK = 2'd1, WAIT = 2'd2, DONE = 2'd3;

    // --- the access -----------------------------------------------------------------------------
    reg [1:0]        state;
    reg [HEAD_W-1:0] head;
    reg              erases, hit;  // the second access of a delete
    reg [127:0]      value;
    wire [7:0]       operation = head[AT +: 8];
    wire [63:0]      key = head[AT+8 +: 64];
    wire             writes = operation == SET || operation == FOUND;
    wire [31:0]      folded = key[31:0] ^ key[63:32];
    /* verilator lint_off UNUSEDSIGNAL */
    wire [31:0]      hash;
    /* verilator lint_on UNUSEDSIGNAL */
    n3ic_card_mix mix (
        .word({folded[7:0], folded[15:8], folded[23:16], folded[31:24]}), .hash(hash)
    );
    wire             same = mem_read[192] && mem_read[63:0] == key;
    assign in_ready  = state == IDLE && !out_valid;
    assign mem_asks  = state == ASK;
    assign mem_write = writes || erases;
    assign mem_addr  = {{(32 - SLOT_W) {1'b0}}, hash[SLOT_W-1:0]};
    assign mem_word  = {63'd0, writes, writes ? head[AT+8 +: 192] : 192'd0};

    // --- its answer -----------------------------------------------------------------------------
    wire [HEAD_W-1:0] reply;
    n3ic_card_reply #(.HEAD_W(HEAD_W)) back (.head(head), .reply(reply));
    reg [HEAD_W-1:0]  sent;
    wire              answers = operation == GET && hit;
    always @* begin
        sent = answers ? reply : head;
        if (answers) sent[AT +: 8] = FOUND;
        if (answers) sent[AT+72 +: 128] = value;
    end
    reg [31:0] gets, found, written, faults;
    always @(posedge clk) begin
        if (out_ready) out_valid <= 1'b0;
        case (state)
            IDLE: if (in_valid && in_ready) begin
                head   <= in_head;
                erases <= 1'b0;
                hit    <= 1'b0;
                state  <= (in_head[AT +: 8] <= DELETE) ? ASK : DONE;
            end
            ASK: if (mem_taken) state <= WAIT;
            WAIT: if (mem_answer) begin
                hit    <= same && !mem_write;
                value  <= mem_read[191:64];
                erases <= operation == DELETE && same && !erases;
                state  <= (operation == DELETE && same && !erases) ? ASK : DONE;
                if (mem_fault) faults <= faults + 1'b1;
            end
            DONE: begin
                out_valid <= 1'b1;
                out_head  <= sent;
                out_class <= {15'd0, answers};
                state     <= IDLE;
                if (operation == GET) gets <= gets + 1'b1;
                if (answers) found <= found + 1'b1;
                if (writes) written <= written + 1'b1;
            end
        endcase
        rd_data <= (rd_addr[1:0] == 2'd0) ? gets : (rd_addr[1:0] == 2'd1) ? found
                 : (rd_addr[1:0] == 2'd2) ? written : faults;
        if (rst) begin
            state     <= IDLE;
            out_valid <= 1'b0;
            gets      <= 32'd0;
            found     <= 32'd0;
            written   <= 32'd0;
            faults    <= 32'd0;
        end
    end
endmodule
