# SPDX-License-Identifier: Apache-2.0
"""Decides when a task gets another instance, and when it gives one back.

SuperNIC, section IV-B: the number of instances follows the offered load of a task and the share of
its users. The paper gives no thresholds. The thresholds here keep instances from coming and going
with every burst, because each change costs a partial reconfiguration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ScalingRules:
    """Thresholds of scaling.

    Attributes:
        out: load over capacity above which another instance is launched.
        into: load over the capacity that one instance fewer would have; below it, an instance is
            given back. The gap to ``out`` is the hysteresis.
        windows: consecutive monitoring windows that must agree.
        least: minimum number of instances.
        most: maximum number of instances.
    """

    out: float = 0.95
    into: float = 0.7
    windows: int = 3
    least: int = 1
    most: int = 16


@dataclass(frozen=True)
class Scaling:
    """Number of instances of a task, and for how long its load has called for another number.

    Attributes:
        instances: number of instances, including those being launched.
        above: consecutive windows with a load above ``out``.
        below: consecutive windows with a load below ``into``.
    """

    instances: int
    above: int = 0
    below: int = 0


def scaled(state: Scaling, load: float, due: float, rules: ScalingRules) -> Scaling:
    """Compute the state after a monitoring window.

    Args:
        state: the state before.
        load: number of instances that the offered load of the task would fill.
        due: number of instances that its users are entitled to. Instances above it are given back,
            and no more are launched.
        rules: thresholds.

    Returns:
        A state whose ``instances`` differ by at most one.
    """
    # The epsilon keeps a due of 2.9999999 from rounding down to 2.
    most = max(rules.least, min(rules.most, int(due + 1e-9)))
    # An entitlement is not a matter of load: instances above it go at once, without hysteresis.
    if state.instances > most:
        return Scaling(state.instances - 1)
    above = state.above + 1 if load > rules.out * state.instances else 0
    # The load is compared with what is left after a removal, else the next window would add it
    # again.
    below = state.below + 1 if load < rules.into * (state.instances - 1) else 0
    if above >= rules.windows and state.instances < most:
        return Scaling(state.instances + 1)
    if below >= rules.windows and state.instances > rules.least:
        return Scaling(state.instances - 1)
    return replace(state, above=above, below=below)
