"""One card with many models and tenants: its description, and the plan of each tenant's share."""
