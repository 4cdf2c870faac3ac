"""Fast prediction: the compiled kernel and its fallback in numpy."""
