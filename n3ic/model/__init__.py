"""The narrow waist: integer networks, their input bits and their file."""
