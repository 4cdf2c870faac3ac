"""What runs and measures the Verilog: simulators, synthesis, place and route."""
