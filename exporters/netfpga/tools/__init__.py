"""Tools that run and measure the Verilog: simulators, synthesis, place and route."""
