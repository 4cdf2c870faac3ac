# SPDX-License-Identifier: Apache-2.0
"""Runs the network in this machine's kernel by ``BPF_PROG_TEST_RUN``; touches no interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from n3ic.errors import VerifyError
from n3ic.exporters.xdp.clang import compile_bpf
from n3ic.exporters.xdp.libbpf import BpfObject, BpfProgram, Closing
from n3ic.exporters.xdp.network.host import HostVerdicts, feature_rows
from n3ic.exporters.xdp.network.source import FOLDER, network_source
from n3ic.exporters.xdp.network.sums import Structure

PROGRAM = "network_bench.c"
INPUTS = 1024
_FRAME = bytes(64)
_PASS = 2


@dataclass(frozen=True, eq=False)
class BpfNetwork(Closing):
    """The network of a structure in the kernel, with room for a batch of inputs.

    Attributes:
        structure: the compiled structure.
        loaded: the loaded object.
        inputs: number of inputs per batch, a power of two.
    """

    structure: Structure
    loaded: BpfObject
    inputs: int

    @classmethod
    def load(cls, structure: Structure, inputs: int = INPUTS, *, keep_rows: bool = True) -> Self:
        """Compile the network and load it; the caller closes it.

        Args:
            structure: structure to compile.
            inputs: number of inputs per batch, a power of two.
            keep_rows: whether the program reports which rows it selected.

        Raises:
            MissingDependencyError: clang or libbpf is missing.
            VerifyError: the C does not compile.
            BpfError: the kernel refuses the program, or the process lacks a right.
        """
        harness = {PROGRAM: (FOLDER / PROGRAM).read_text(encoding="utf-8")}
        options = [f"-DINPUTS={inputs}", *(["-DNETWORK_KEEP_ROWS"] if keep_rows else [])]
        image = compile_bpf(network_source(structure) | harness, PROGRAM, options)
        return cls(structure, BpfObject(image, "network.o"), inputs)

    def close(self) -> None:
        """Close maps and programs."""
        self.loaded.close()

    @property
    def program(self) -> BpfProgram:
        """The program that runs the network."""
        return self.loaded.programs["network"]

    def put(self, value: bytes, features: Mapping[str, ArrayLike]) -> None:
        """Fill the maps.

        Args:
            value: map value from :func:`value_bytes`.
            features: integers of shape ``(inputs,)`` for each feature of the structure.
        """
        self.loaded.maps["networks"].update(0, value)
        for i, row in enumerate(feature_rows(self.structure, features)):
            self.loaded.maps["inputs"].update(i, row.tobytes())

    def run(self, value: bytes, features: Mapping[str, ArrayLike]) -> HostVerdicts:
        """Run the network on a batch of integer features; see :meth:`put`.

        Raises:
            VerifyError: the program stopped early.
        """
        self.put(value, features)
        done = self.program.test_run(_FRAME, repeat=self.inputs)
        if done.result != _PASS:
            raise VerifyError(f"the program ended with {done.result}, expected {_PASS}")
        read = [self.loaded.maps["results"].lookup(i) or b"" for i in range(self.inputs)]
        classes, selectors = self.structure.classes, len(self.structure.selectors)
        if len(read[0]) < 4 * classes + 12 + selectors:
            selectors = 0  # the program does not report them
        record = np.dtype(
            [
                ("scores", "<i4", (classes,)),
                ("verdict", "<i4"),
                ("class", "<u4"),
                ("margin", "<u4"),
                ("selected", "u1", (selectors,)),
            ]
        )
        out = np.array([np.frombuffer(row, record, 1)[0] for row in read])
        return HostVerdicts(
            out["scores"], out["class"], out["margin"], out["verdict"], out["selected"]
        )

    def differences(self, rounds: int, repeat: int) -> tuple[list[int], list[int]]:
        """Time the network, in nanoseconds on top of the program that only parses and reads.

        The two programs alternate, so that other load on the machine affects both.

        Args:
            rounds: number of timings of each program.
            repeat: packets per round.

        Returns:
            One entry per round: differences, and nanoseconds of the program that only parses.
        """
        parse = self.loaded.programs["parse"]
        both = [
            (
                parse.test_run(_FRAME, repeat=repeat).nanoseconds,
                self.program.test_run(_FRAME, repeat=repeat).nanoseconds,
            )
            for _ in range(rounds)
        ]
        return [network - base for base, network in both], [base for base, _ in both]
