"""The narrow waist: integer networks, their input bits and their file.

May import the first floor: util, options, plugins, errors; docs/explanation/architecture.md has the order.
"""
