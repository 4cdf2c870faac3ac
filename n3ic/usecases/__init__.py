"""Use cases: what is trained on which data by default."""
