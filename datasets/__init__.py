"""Data sets and their use cases, one folder each; found through entry points."""
