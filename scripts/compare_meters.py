#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often the standard meter's features equal those of argus and nDPI, and why they differ.

``scripts/compare_meters.py CAPTURES... [--ndpi flows.csv]`` prints the tables as Markdown.
"""

from __future__ import annotations

import argparse
import sys

from meters import argus, ndpi

from n3ic.errors import N3icError
from n3ic.meter.extract import find_captures


def main() -> int:
    """Compare the captures of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures", nargs="+", help="files, or folders of them")
    parser.add_argument("--ndpi", help="nDPI's CSV of the flows of the same captures")
    arguments = parser.parse_args()
    try:
        paths = [source.path for source in find_captures(arguments.captures)]
        comparison = argus.compare_argus(paths)
        print(f"## argus\n\n{comparison.markdown('argus', argus.FEATURES)}")
        if arguments.ndpi:
            comparison = ndpi.compare_ndpi(paths, arguments.ndpi)
            print(f"## nDPI\n\n{comparison.markdown('nDPI', ndpi.FEATURES)}")
    except N3icError as e:
        print(f"compare_meters: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
