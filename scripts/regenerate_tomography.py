#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulate the bundled trace again: ``scripts/regenerate_tomography.py [FILE]``."""

from __future__ import annotations

import sys

from n3ic.datasets.ns3_tomography import BUNDLED
from n3ic.datasets.ns3_tomography.simulate import Simulation, generate
from n3ic.errors import N3icError

SIMULATION = Simulation(duration=60, seed=20261121)
RUNS = 5


def main(arguments: list[str]) -> int:
    """Write the trace to the named file, or to the name of the bundled trace in this folder."""
    try:
        generate(
            SIMULATION,
            arguments[0] if arguments else BUNDLED,
            runs=RUNS,
            note=lambda text: sys.stderr.write(f"{text}\n"),
        )
    except N3icError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
