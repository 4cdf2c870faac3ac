"""Files, names, caches and text that every room uses."""
