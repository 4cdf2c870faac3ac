"""Targets, one folder each; found through entry points."""
