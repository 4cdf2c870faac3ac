"""When a task gets another instance, and when it gives one back.

SuperNIC, section IV-B: the number of instances follows the load that is meant for a task and the
share that is due to its users. The text gives no thresholds; these keep an instance from coming
and going with every burst, for each change costs a partial reconfiguration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ScalingRules:
    """Thresholds of scaling.

    Attributes:
        out: load over capacity from which on one more instance is wanted.
        into: load over the capacity of one instance fewer below which one is given back; the gap
            to ``out`` is the hysteresis.
        windows: monitoring windows in a row that must agree.
        least: instances that always stay.
        most: instances that there may be at all.
    """

    out: float = 0.95
    into: float = 0.7
    windows: int = 3
    least: int = 1
    most: int = 16


@dataclass(frozen=True)
class Scaling:
    """How many instances a task has, and for how long its load has asked for another number.

    Attributes:
        instances: those there are, the ones being launched included.
        above: windows in a row with more load than ``out``.
        below: windows in a row with less load than ``into``.
    """

    instances: int
    above: int = 0
    below: int = 0


def scaled(state: Scaling, load: float, due: float, rules: ScalingRules) -> Scaling:
    """The state after a monitoring window.

    Args:
        state: the one before.
        load: instances that the load meant for the task would fill.
        due: instances that its users are entitled to; more are not launched, and where it is less
            than there are, instances are given back.
        rules: thresholds.

    Returns:
        A state whose ``instances`` differ by at most one.
    """
    most = max(rules.least, min(rules.most, int(due + 1e-9)))
    if state.instances > most:
        return Scaling(state.instances - 1)
    above = state.above + 1 if load > rules.out * state.instances else 0
    below = state.below + 1 if load < rules.into * (state.instances - 1) else 0
    if above >= rules.windows and state.instances < most:
        return Scaling(state.instances + 1)
    if below >= rules.windows and state.instances > rules.least:
        return Scaling(state.instances - 1)
    return replace(state, above=above, below=below)
