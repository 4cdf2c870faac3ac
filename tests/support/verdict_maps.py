# SPDX-License-Identifier: Apache-2.0
"""An operator's verdicts in the maps of a loaded program, as n3icd puts them there."""

import numpy as np

from n3ic.exporters.xdp import layout
from n3ic.exporters.xdp.verdict_lists import ACTIONS, ALLOWING


def set_verdict(maps, where, action, argument, now, until):
    """Put a verdict on a subject into its map; ``until`` may be None."""
    value = np.zeros(1, layout.VERDICT)
    value["until"] = layout.FOR_EVER if until is None else until
    value["since"], value["by"], value["bits"] = now, layout.BY_OPERATOR, where.bits
    value["action"], value["argument"] = ACTIONS.index(action), argument
    name = "tuples" if where.flow else "allowed" if action in ALLOWING else "listed"
    maps[name].update(where.key, value.tobytes())
    for use in range(len(layout.USES)):  # any of the maps may hold one
        maps["uses"].update(use, layout.FOR_EVER.to_bytes(8, "little"))


def remove_listed(maps, where):
    """Remove the operator's verdict on a source."""
    maps["listed"].delete(where.key)
