"""One card of several tenants: their networks behind a scheduler of credits, in one image."""
