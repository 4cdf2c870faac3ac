"""Runs a generated program on packets, in the interpreter and on bmv2."""
