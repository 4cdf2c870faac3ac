"""A card of several tenants as one P4 program whose weight tables are keyed by the graph."""
