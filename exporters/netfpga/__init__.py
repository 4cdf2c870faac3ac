"""NetFPGA-SUME: Verilog executors, their packet wrapper, simulation and synthesis."""
