"""Tools for the programs on a machine: load, update, watch, unload."""
