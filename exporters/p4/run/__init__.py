"""Running a generated program: packets made and read, in the interpreter and on bmv2."""
