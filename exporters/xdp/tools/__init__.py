"""What is done with the programs on a machine: load, update, watch, unload."""
