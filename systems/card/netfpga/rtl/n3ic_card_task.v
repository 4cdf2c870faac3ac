// SPDX-License-Identifier: Apache-2.0
// A place in a region's chain: a queue in front of a task, and a bypass for packets that skip it.
// Every packet inside holds a credit, so the queue and the task's answers always have room.
module n3ic_card_task #(
    parameter SIDE_W   = 16,
    parameter DATA_W   = 256,
    parameter RESULT_W = 60,
    parameter CREDIT_W = 3,
    parameter SKIP_AT  = 0   // bit of `side` that is set if the task is skipped or done
) (
    input  wire                clk,
    input  wire                rst,
    input  wire                in_valid,
    input  wire [SIDE_W-1:0]   in_side,
    input  wire [RESULT_W-1:0] in_result,
    input  wire [DATA_W-1:0]   in_data,
    // To the task
    output wire                task_valid,
    input  wire                task_ready,
    output wire [SIDE_W-1:0]   task_side,
    output wire [RESULT_W-1:0] task_result,
    output wire [DATA_W-1:0]   task_data,
    // From it
    input  wire                answer_valid,
    output wire                answer_ready,
    input  wire [SIDE_W-1:0]   answer_side,
    input  wire [RESULT_W-1:0] answer_result,
    input  wire [DATA_W-1:0]   answer_data,
    output wire                out_valid,
    input  wire                out_ready,
    output wire [SIDE_W-1:0]   out_side,
    output wire [RESULT_W-1:0] out_result,
    output wire [DATA_W-1:0]   out_data
);
    wire [CREDIT_W:0] level;
    wire waiting = level != {(CREDIT_W + 1) {1'b0}};
    wire skips   = task_side[SKIP_AT];
    wire around  = waiting && skips && !answer_valid && out_ready;
    n3ic_fifo #(.WIDTH(SIDE_W + RESULT_W + DATA_W), .DEPTH_W(CREDIT_W)) queue (
        .clk(clk), .rst(rst), .push(in_valid), .in_data({in_side, in_result, in_data}),
        .pop(around || (task_valid && task_ready)),
        .out_data({task_side, task_result, task_data}), .level(level)
    );
    wire [SIDE_W-1:0] through = {{(SIDE_W - 1) {1'b0}}, 1'b1} << SKIP_AT;
    assign task_valid   = waiting && !skips;
    assign answer_ready = out_ready;
    // An answer goes first: it has left the queue, and nothing holds it back but this output.
    assign out_valid    = answer_valid || (waiting && skips);
    assign out_side     = answer_valid ? answer_side | through : task_side;
    assign out_result   = answer_valid ? answer_result : task_result;
    assign out_data     = answer_valid ? answer_data : task_data;
endmodule
