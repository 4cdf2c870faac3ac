"""What argus and nDPI say of the flows of a capture, beside the standard meter."""
