#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds and memory of a card's plan, export and verification with many tenants.

    python scripts/many_tenants.py host xdp --tenants 200 --networks 64
    python scripts/many_tenants.py netfpga --tenants 126 --networks 64

Each tenant has a graph of one network of 64-16-2, and networks are shared. A step is a call of the
command line; its memory is the most that it or a process of it holds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from n3ic.model.random_models import random_model
from n3ic.util.markdown import table

SHAPE = (64, 16, 2)
STEPS = {
    "plan": ("card.toml", "--out", "plan.json"),
    "export": ("card.toml", "--out", "card", "--no-verify"),
    "verify": ("card",),
}


class Cost(NamedTuple):
    """What a step took.

    Attributes:
        step: the command.
        seconds: from its start to its end.
        mebibytes: the most memory of a process.
    """

    step: str
    seconds: float
    mebibytes: float


def description(target: str, tenants: int, networks: int) -> str:
    """Compose the text of ``card.toml``."""
    lines = ['name = "many"', "[device]", f'target = "{target}"', 'uid = "udp-port"']
    for n in range(networks):
        lines += ["[[tasks]]", f'name = "n{n}"', 'kind = "network"', f'model = "n{n}.n3ic"']
    for t in range(tenants):
        lines += ["[[tenants]]", f'name = "t{t}"', "[[tenants.graphs]]", 'name = "g"']
        lines += [f"uid = {4000 + t}", 'wants = "1000 packets/s"', f'flow = ["n{t % networks}"]']
    return "\n".join([*lines, ""])


def costs(target: str, tenants: int, networks: int, folder: Path) -> Iterator[Cost]:
    """Write a card into a folder, and run each step on it.

    Raises:
        subprocess.CalledProcessError: a step failed.
    """
    for n in range(networks):
        model = random_model(SHAPE, np.random.default_rng(n), extremes=False)
        model.save(folder / f"n{n}.n3ic")
    (folder / "card.toml").write_text(description(target, tenants, networks))
    for step, words in STEPS.items():
        command = [sys.executable, "-m", "n3ic", "card", step, *words]
        begun = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        yield Cost(step, time.monotonic() - begun, usage.ru_maxrss / 1024)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of the steps of each target."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("targets", nargs="+", help="targets of cards")
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--networks", type=int, default=64)
    chosen = parser.parse_args(arguments)
    rows: list[tuple[str, ...]] = []
    for target in chosen.targets:
        with tempfile.TemporaryDirectory(prefix="n3ic-tenants-") as name:
            rows.extend(
                (target, cost.step, f"{cost.seconds:.1f} s", f"{cost.mebibytes:.0f} MiB")
                for cost in costs(target, chosen.tenants, chosen.networks, Path(name))
            )
    print("\n".join(table(("target", "step", "time", "memory"), rows)))


if __name__ == "__main__":
    main()
