"""The command line: `n3ic`."""
