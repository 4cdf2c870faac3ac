"""Families of models, one folder each; found through entry points."""
