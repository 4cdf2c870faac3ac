// SPDX-License-Identifier: Apache-2.0
// On-board memory of a card's tasks: words of 32 bytes in pages that tenants hold.
//
// A flat table has the physical page of each virtual one, and each physical page says which virtual
// page holds it. A request goes to the memory only if both agree. So a page has one holder, whatever
// is written into the table. Any other request, and one beyond the tenant's pages, is a fault: it is
// answered with zeros, and counted.
//
// A port has one request at a time, and ports take turns; one that asks waits at most for a request
// of each other port and one word of zeros. A request takes six clocks, and the memory's. The memory
// must serve requests in their order; only reads are answered, in that order too.
//
// After a reset, no page is held; then the virtual pages get the first physical ones, in order. A
// page is filled with zeros before it is held. Registers, as in n3ic_card_control:
//   5 word 0, written: give [31] or take a page: physical [30:16], to virtual [15:0];
//     ignored while one is under way. Read: one is under way [0]
//   6 of a tenant, read-only: 0 faults, 1 requests that went to the memory
module n3ic_card_memory #(
    parameter PORTS   = 2,
    parameter TENANTS = 2,
    parameter QUEUE_W = 2,
    parameter PAGE_W  = 16,  // 2^PAGE_W words in a page
    parameter PAGES   = 4,   // physical pages
    parameter FRAME_W = 2,   // bits of a physical page
    parameter VIRTUAL = 4,   // virtual pages of all tenants
    parameter INDEX_W = 2,   // bits of a virtual page
    parameter [16*TENANTS-1:0] BASES  = {16'd2, 16'd0},  // a tenant's first virtual page
    parameter [16*TENANTS-1:0] LIMITS = {16'd2, 16'd2}   // and how many it has
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire                      cfg_wr,
    input  wire [15:0]               cfg_addr,
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire [31:0]               cfg_wdata,
    /* verilator lint_on UNUSEDSIGNAL */
    output reg  [31:0]               cfg_rdata,
    // Requests of tasks, each of the tenant whose packet its task has
    input  wire [PORTS-1:0]          asks,
    output wire [PORTS-1:0]          taken,
    input  wire [QUEUE_W*PORTS-1:0]  tenants,
    input  wire [PORTS-1:0]          writes,
    input  wire [32*PORTS-1:0]       addrs,    // words from the tenant's first one
    input  wire [256*PORTS-1:0]      words,
    output reg  [PORTS-1:0]          answers,
    output reg  [PORTS-1:0]          faults,
    output wire [256*PORTS-1:0]      reads,
    // The memory
    output wire                      mem_valid,
    input  wire                      mem_ready,
    output reg                       mem_write,
    output wire [FRAME_W+PAGE_W-1:0] mem_addr,
    output reg  [QUEUE_W-1:0]        mem_tenant,  // whose request; TENANTS for zeros of the card
    output reg  [255:0]              mem_data,
    input  wire                      back_valid,
    input  wire [255:0]              back_data
);
    localparam [2:0] WIPE = 3'd0, IDLE = 3'd1, ADD = 3'd2, LOOK = 3'd3, HOLD = 3'd4, CHECK = 3'd5, SEND = 3'd6;
    localparam VPAGE_W = 32 - PAGE_W;
    reg [2:0] state;

    // --- pages are given and taken ----------------------------------------------------------------
    reg               busy, boots, gives, revoked;
    reg [FRAME_W-1:0] page;
    reg [INDEX_W-1:0] index;
    reg [PAGE_W:0]    filled;  // words of the page that are zeros
    wire              whole = filled[PAGE_W];
    wire              command = cfg_wr && cfg_addr[15:12] == 4'd5 && cfg_addr[2:0] == 3'd0 && !busy
                              && {17'd0, cfg_wdata[30:16]} < PAGES && {16'd0, cfg_wdata[15:0]} < VIRTUAL;

    // --- whose turn it is -------------------------------------------------------------------------
    reg  [PORTS-1:0] waits;  // for an answer
    wire [PORTS:0]   turn;
    wire             idle = state == IDLE;
    wire             mine = idle && turn[PORTS];
    n3ic_card_turns #(.N(PORTS + 1)) turns (
        .clk(clk), .rst(rst), .asks({busy, asks & ~waits}), .taken(idle && |turn), .turn(turn)
    );
    assign taken = idle ? turn[PORTS-1:0] : {PORTS {1'b0}};
    reg [QUEUE_W-1:0] tenant;
    reg               write;
    reg [31:0]        addr;
    reg [255:0]       word;
    integer p;
    always @* begin
        tenant = {QUEUE_W {1'b0}};
        write  = 1'b0;
        addr   = 32'd0;
        word   = 256'd0;
        for (p = 0; p < PORTS; p = p + 1) begin
            tenant = tenant | (tenants[QUEUE_W*p +: QUEUE_W] & {QUEUE_W {turn[p]}});
            write  = write | (writes[p] & turn[p]);
            addr   = addr | (addrs[32*p +: 32] & {32 {turn[p]}});
            word   = word | (words[256*p +: 256] & {256 {turn[p]}});
        end
    end

    // --- translation --------------------------------------------------------------------------------
    (* ram_style = "block" *)
    reg [FRAME_W-1:0]  pages [0:(1 << INDEX_W)-1];    // of each virtual page
    (* ram_style = "block" *)
    reg [INDEX_W:0]    holders [0:(1 << FRAME_W)-1];  // of each physical page; top bit: held
    integer n;
    initial begin
        for (n = 0; n < 1 << INDEX_W; n = n + 1) pages[n] = {FRAME_W {1'b0}};
        for (n = 0; n < 1 << FRAME_W; n = n + 1) holders[n] = {(INDEX_W + 1) {1'b0}};
    end
    reg [PORTS-1:0]    who;
    reg [VPAGE_W-1:0]  vpage;
    reg [PAGE_W-1:0]   offset;
    reg [INDEX_W-1:0]  at;
    reg                fits;
    reg [FRAME_W-1:0]  frame;
    reg [INDEX_W:0]    holder;
    reg [15:0]         base, limit;
    integer t;
    always @* begin
        base  = 16'd0;
        limit = 16'd0;
        for (t = 0; t < TENANTS; t = t + 1)
            if (mem_tenant == t) begin
                base  = BASES[16*t +: 16];
                limit = LIMITS[16*t +: 16];
            end
    end
    /* verilator lint_off UNUSEDSIGNAL */
    wire [15:0] sum = base + {{(16 - INDEX_W) {1'b0}}, vpage[INDEX_W-1:0]};
    /* verilator lint_on UNUSEDSIGNAL */
    wire        allowed = fits && holder == {1'b1, at};
    wire        wipes = state == WIPE;
    wire        places = mine && revoked && whole;
    always @(posedge clk) begin
        if (places) pages[index] <= page;
        if (state == LOOK) frame <= pages[at];
        if (wipes || (mine && !revoked) || places) holders[page] <= {places, index};
        if (state == HOLD) holder <= holders[frame];
    end
    assign mem_valid = state == SEND;
    wire                clears = who == {PORTS {1'b0}};
    assign mem_addr  = {clears ? page : frame, offset};

    // --- answers --------------------------------------------------------------------------------------
    localparam ORDER_W = (PORTS > 2) ? $clog2(PORTS) : 1;
    wire [PORTS-1:0] first;
    wire [ORDER_W:0] level;
    wire             sent = mem_valid && mem_ready;
    wire             comes = back_valid && level != {(ORDER_W + 1) {1'b0}};
    reg  [PORTS-1:0] shown;
    reg  [255:0]     back;
    n3ic_fifo #(.WIDTH(PORTS), .DEPTH_W(ORDER_W)) order (
        .clk(clk), .rst(rst), .push(sent && !mem_write), .in_data(who), .pop(comes), .out_data(first),
        .level(level)
    );
    genvar q;
    generate
        // What is read for another port is not to be seen.
        for (q = 0; q < PORTS; q = q + 1) begin : g_port
            assign reads[256*q +: 256] = back & {256 {shown[q]}};
        end
    endgenerate
    wire             fails = state == CHECK && !allowed;
    wire [PORTS-1:0] done = (comes ? first : {PORTS {1'b0}})
                          | (fails || (sent && mem_write) ? who : {PORTS {1'b0}});

    always @(posedge clk) begin
        back    <= back_data;
        shown   <= comes ? first : {PORTS {1'b0}};
        answers <= done;
        faults  <= fails ? who : {PORTS {1'b0}};
        waits   <= (waits | taken) & ~done;
        case (state)
            WIPE: begin
                page <= page + 1'b1;
                if (page == PAGES - 1) begin
                    page  <= {FRAME_W {1'b0}};
                    busy  <= 1'b1;
                    state <= IDLE;
                end
            end
            IDLE: if (|turn) begin
                who        <= turn[PORTS-1:0];
                mem_tenant <= turn[PORTS] ? TENANTS : tenant;
                mem_write  <= turn[PORTS] || write;
                mem_data   <= word;
                vpage      <= addr[31:PAGE_W];
                offset     <= addr[PAGE_W-1:0];
                if (!turn[PORTS]) state <= ADD;
            end
            ADD: begin
                at    <= sum[INDEX_W-1:0];
                fits  <= {{PAGE_W {1'b0}}, vpage} < {16'd0, limit};
                state <= LOOK;
            end
            LOOK:    state <= HOLD;
            HOLD:    state <= CHECK;
            CHECK:   state <= allowed ? SEND : IDLE;
            default: if (mem_ready) state <= IDLE;
        endcase
        // One step of a page that is given or taken: nobody holds it, it is zeros, it is held.
        if (mine && !revoked) begin
            revoked <= 1'b1;
            busy    <= gives;
        end else if (mine && !whole) begin
            offset <= filled[PAGE_W-1:0];
            filled <= filled + 1'b1;
            state  <= SEND;
        end else if (mine) begin
            busy    <= boots && index != VIRTUAL - 1;
            boots   <= boots && index != VIRTUAL - 1;
            revoked <= 1'b0;
            filled  <= {(PAGE_W + 1) {1'b0}};
            page    <= page + 1'b1;
            index   <= index + 1'b1;
        end
        if (command) begin
            busy    <= 1'b1;
            gives   <= cfg_wdata[31];
            page    <= cfg_wdata[16 +: FRAME_W];
            index   <= cfg_wdata[INDEX_W-1:0];
            revoked <= 1'b0;
            filled  <= {(PAGE_W + 1) {1'b0}};
        end
        if (rst) begin
            state   <= WIPE;
            busy    <= 1'b1;
            boots   <= 1'b1;
            gives   <= 1'b1;
            revoked <= 1'b0;
            page    <= {FRAME_W {1'b0}};
            index   <= {INDEX_W {1'b0}};
            filled  <= {(PAGE_W + 1) {1'b0}};
            waits   <= {PORTS {1'b0}};
            answers <= {PORTS {1'b0}};
            faults  <= {PORTS {1'b0}};
            shown   <= {PORTS {1'b0}};
        end
    end

    // --- registers --------------------------------------------------------------------------------------
    wire [64*TENANTS-1:0] counters;
    genvar c;
    generate
        for (c = 0; c < TENANTS; c = c + 1) begin : g_tenant
            reg [31:0] faulty, served;
            always @(posedge clk) begin
                if (fails && mem_tenant == c) faulty <= faulty + 1'b1;
                if (sent && mem_tenant == c) served <= served + 1'b1;
                if (rst) faulty <= 32'd0;
                if (rst) served <= 32'd0;
            end
            assign counters[64*c +: 64] = {served, faulty};
        end
    endgenerate
    integer i;
    always @(posedge clk) begin
        cfg_rdata <= (cfg_addr[15:12] == 4'd5 && cfg_addr[2:0] == 3'd0) ? {31'd0, busy} : 32'd0;
        for (i = 0; i < TENANTS; i = i + 1)
            if (cfg_addr[15:12] == 4'd6 && cfg_addr[11:3] == i && cfg_addr[2:1] == 2'd0)
                cfg_rdata <= cfg_addr[0] ? counters[64*i+32 +: 32] : counters[64*i +: 32];
    end
endmodule
