# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from n3ic.systems.card.netfpga import simulation


@pytest.fixture(autouse=True)
def soon_quiet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end after 400 clocks without a packet, which none of these small networks needs.

    The long tests wait as long as a user's verification. A packet that leaves later is a lost one.
    """
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setitem(simulation.run.__kwdefaults__, "quiet", 400)
