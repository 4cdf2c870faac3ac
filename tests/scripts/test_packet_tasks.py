# SPDX-License-Identifier: Apache-2.0
"""Clocks of chains of packet tasks, in Verilog."""

import shutil

import pytest

from n3ic.systems.card.netfpga.image import HardwarePass
from scripts import packet_tasks

pytestmark = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")


def test_a_chain_as_a_whole_takes_less_clocks_than_task_by_task() -> None:
    tasks = [packet_tasks.stage(name) for name in ("firewall", "counters")]
    whole = packet_tasks.measure([tasks], ((HardwarePass((0,), (0, 1)),),))
    apart = packet_tasks.measure([[t] for t in tasks], ((HardwarePass((0,)), HardwarePass((1,))),))
    assert apart.latency == whole.latency + 8
    assert whole.rate > 1.9 * apart.rate


@pytest.mark.exhaustive
def test_two_instances_of_a_slow_task_serve_twice_as_much() -> None:
    chain = [packet_tasks.stage("firewall"), packet_tasks.stage("aes")]
    one, two = (
        packet_tasks.measure([chain] * n, ((HardwarePass(tuple(range(n)), (0, 1)),),))
        for n in (1, 2)
    )
    assert two.latency == one.latency
    assert two.rate == pytest.approx(2 * one.rate, rel=0.05)


@pytest.mark.exhaustive
def test_the_script_prints_tables(capsys: pytest.CaptureFixture[str]) -> None:
    packet_tasks.main(["store"])
    output = capsys.readouterr().out
    assert "Zipf 0.99" in output
    assert "simulated" in output
