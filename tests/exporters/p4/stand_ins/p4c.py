# SPDX-License-Identifier: Apache-2.0
"""Stands in for p4c-bm2-ss: checks the program with n3ic's compiler and writes it as its "JSON"."""

# ruff: noqa: T201 - the tools that these stand in for print, too

import sys
from pathlib import Path

from n3ic.exporters.p4.interpreter import P4Error, Switch

if "--version" in sys.argv:
    print("p4c-bm2-ss\nVersion 0.0.0-stand-in")
    sys.exit(0)
source = Path(sys.argv[-1]).read_text()
try:
    Switch(source)
except P4Error as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(1)
Path(sys.argv[sys.argv.index("-o") + 1]).write_text(source)
