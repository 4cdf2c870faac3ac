"""Several models or several machines: systems built from exported models."""
