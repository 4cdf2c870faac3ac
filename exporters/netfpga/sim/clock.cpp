// Gives a Verilated test bench its clock until it finishes.
#include "Vn3ic_tb.h"
#include "verilated.h"

int main(int argc, char** argv) {
    VerilatedContext context;
    context.commandArgs(argc, argv);
    Vn3ic_tb bench{&context};
    while (!context.gotFinish()) {
        bench.clk = 0;
        bench.eval();
        bench.clk = 1;
        bench.eval();
    }
    bench.final();
    return 0;
}
