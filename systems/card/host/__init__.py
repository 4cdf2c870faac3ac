"""A card of several tenants on a host: one process, one library, one pool of threads."""
