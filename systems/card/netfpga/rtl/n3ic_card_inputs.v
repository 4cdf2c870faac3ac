// SPDX-License-Identifier: Apache-2.0
// Stores the inputs of admitted packets by sequence number, and the intermediate data of packets
// that go on in another region. Each memory has one writer, so no write waits.
module n3ic_card_inputs #(
    parameter QUEUE_W  = 2,
    parameter SEQ_W    = 5,
    parameter BRANCH_W = 1,
    parameter DATA_W   = 256,
    parameter RESULT_W = 60,
    parameter AGAIN    = 0   // 1: packets may be in more than one task
) (
    input  wire                clk,
    input  wire                admit,
    input  wire [QUEUE_W-1:0]  admit_queue,
    input  wire [SEQ_W-1:0]    admit_seq,
    input  wire [DATA_W-1:0]   admit_data,
    input  wire                back,
    input  wire [QUEUE_W-1:0]  back_queue,
    input  wire [SEQ_W-1:0]    back_seq,
    input  wire [BRANCH_W-1:0] back_branch,
    input  wire [RESULT_W-1:0] back_result,
    input  wire [DATA_W-1:0]   back_data,
    // Read; the data follow one clock later
    input  wire [QUEUE_W-1:0]  rd_queue,
    input  wire [SEQ_W-1:0]    rd_seq,
    input  wire [BRANCH_W-1:0] rd_branch,
    input  wire                rd_again,
    output wire [RESULT_W-1:0] result,
    output wire [DATA_W-1:0]   data
);
    (* ram_style = "block", no_rw_check *)
    reg [DATA_W-1:0] inputs [0:(1 << (QUEUE_W + SEQ_W))-1];
    reg [DATA_W-1:0] input_data;
    always @(posedge clk) begin
        if (admit) inputs[{admit_queue, admit_seq}] <= admit_data;
        input_data <= inputs[{rd_queue, rd_seq}];
    end
    generate
        if (AGAIN != 0) begin : g_again
            (* ram_style = "block", no_rw_check *)
            reg [RESULT_W+DATA_W-1:0] backs [0:(1 << (QUEUE_W + SEQ_W + BRANCH_W))-1];
            reg [RESULT_W+DATA_W-1:0] back_word;
            reg                       again;
            always @(posedge clk) begin
                if (back) backs[{back_queue, back_seq, back_branch}] <= {back_result, back_data};
                back_word <= backs[{rd_queue, rd_seq, rd_branch}];
                again     <= rd_again;
            end
            assign result = again ? back_word[RESULT_W+DATA_W-1:DATA_W] : {RESULT_W {1'b0}};
            assign data   = again ? back_word[DATA_W-1:0] : input_data;
        end else begin : g_once
            /* verilator lint_off UNUSEDSIGNAL */
            wire unused = back ^ (^back_queue) ^ (^back_seq) ^ (^back_branch) ^ (^back_result)
                        ^ (^back_data) ^ (^rd_branch) ^ rd_again;
            /* verilator lint_on UNUSEDSIGNAL */
            assign result = {RESULT_W {1'b0}};
            assign data   = input_data;
        end
    endgenerate
endmodule
