# SPDX-License-Identifier: Apache-2.0
"""The process of a function, beside a manager of which the test decides when it does what."""

from contextlib import nullcontext

import numpy as np

from n3ic.systems.stream.functions import process
from n3ic.systems.stream.functions.chain import ChainFunction
from n3ic.systems.stream.functions.packets import PacketFunction, PacketView


class LateManager:
    """Hands over its last packets, and stops the function, just after a wait for packets ended."""

    stopping = False
    returned = 0

    def receive(self, wait_us):
        n = 3 if self.stopping and not self.returned else 0
        self.stopping = True
        return PacketView(np.zeros(0, np.uint8), *(np.zeros(n, np.uint64) for _ in range(6)))

    def give_back(self, descriptors, actions):
        self.returned += len(descriptors)

    def check_manager(self):
        assert not self.returned


def test_packets_that_came_before_the_stop_reach_the_function(monkeypatch):
    class Counted(PacketFunction):
        def on_batch(self, view):
            return None

    manager = LateManager()
    monkeypatch.setattr(process, "SharedPackets", lambda *_: nullcontext(manager))
    monkeypatch.setattr(process, "function_class", lambda _: Counted)
    process.serve(process.FunctionTask("socket", "", ChainFunction("one", "count")))
    assert manager.returned == 3
