"""A card under load: tenants, bursts and failures, and who gets what under which policy."""
