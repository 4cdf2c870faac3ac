"""One card, many models, many tenants: its description, and the plan of who gets what of it."""
