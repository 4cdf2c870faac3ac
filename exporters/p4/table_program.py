# SPDX-License-Identifier: Apache-2.0
"""What all programs for v1model, PSA and PNA share, whatever their tables hold."""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from n3ic.errors import UsageError
from n3ic.exporters.p4.decoding import (
    DecodedEntry,
    from_bfrt,
    from_commands,
    from_p4runtime,
    from_p4runtime_texts,
)
from n3ic.exporters.p4.interpreter import Switch
from n3ic.exporters.p4.shared.options import PACKET_OPTIONS, SHUNTING, shunt_port
from n3ic.exporters.p4.shared.target import PROGRAM, P4Program, compile_switch, read_artefact
from n3ic.exporters.p4.table_entries import (
    ControlIds,
    Steps,
    bfrt_calls,
    cli_commands,
    ids_of,
    p4runtime_requests,
    p4runtime_texts,
    tutorial_runtime,
)
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, ModelT
from n3ic.targets.capabilities import VerificationDefaults
from n3ic.targets.figures import Figure
from n3ic.targets.packets import INGRESS, PacketLayout

COMMANDS, P4RUNTIME, TUTORIAL = "commands.txt", "p4runtime.json", "runtime.json"
BFRT = "bfrt.py"
# The steps of p4runtime.json, a message each.
P4RUNTIME_TEXTS = ("p4runtime-1.txtpb", "p4runtime-2.txtpb", "p4runtime-3.txtpb")
# Of one direction of a pipe of Tofino 2, in p4c's Tofino back end (backends/tofino/bf-p4c): stages;
# tables of a stage; bits of the containers that every action may write, 48 of 8, 72 of 16 and 48
# of 32 bits. Its other containers hold what is moved as a whole.
_STAGES, _TABLES, _PHV_BITS = 20, 16, 48 * 8 + 72 * 16 + 48 * 32

ARCHITECTURE = Option(
    "architecture",
    "architecture of the program: bmv2's, or that of portable switches or of portable NICs",
    "v1model",
    choices=("v1model", "psa", "pna"),
    newer=True,
)


class TableProgram(P4Program[ModelT]):
    """A target whose model is a program with tables and their entries.

    Attributes:
        architecture: the program's, whose name is that of its include file.
    """

    architecture: str = "v1model"
    options: ClassVar[tuple[Option, ...]] = (
        *PACKET_OPTIONS,
        ARCHITECTURE,
        SHUNTING,
        shunt_port(510, "such as the CPU port of the switch"),
    )
    verification: ClassVar[VerificationDefaults] = replace(
        P4Program.verification,
        options=(
            Option("with-bmv2", "compile with p4c and run on simple_switch (needs root)", False),
        ),
    )
    crossed: ClassVar[int] = INGRESS ^ 1  # ports pair up: 0 with 1, 2 with 3

    def for_options(self, options: Options) -> Self:
        """The exporter for the architecture that the options name."""
        chosen = copy.copy(self)
        chosen.architecture = str(options.get("architecture", self.architecture))
        if chosen.architecture != "v1model":
            name = f"a device with {chosen.architecture.upper()}"
            chosen.__dict__["device"] = replace(self.device, name=name)
        return chosen

    def render(
        self, name: str, model: ModelT, network: Any, packets: PacketLayout, **more: Any
    ) -> str:
        """Render a template of the target, for its architecture."""
        architecture = self.architecture
        return super().render(name, model, network, packets, architecture=architecture, **more)

    def run(self, directory: Path, model: ModelT, options: Options, words: Words) -> Execution:
        """Send packets through the program; see the base class.

        Raises:
            UsageError: bmv2's simple_switch is to run a program for another architecture.
        """
        if options.get("with-bmv2") and self.architecture != "v1model":
            raise UsageError(
                f"--with-bmv2 runs programs for v1model, this one is for {self.architecture}: "
                "export it with --architecture v1model"
            )
        return super().run(directory, model, options, words)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks of reports on what ran the program."""
        if self.architecture == "v1model":
            return (
                "bmv2 shows function, not speed: measure latency on the target device.",
                "The program is for p4c and bmv2; the verification names the executor that ran "
                "here.",
            )
        return (
            f"The program is for {self.architecture}.p4 of p4c. No compiler for that architecture "
            "took it here (not compiled): n3ic's own interpreter read and ran it.",
        )

    @abstractmethod
    def entries(self, network: Any, port: int | None = None) -> Steps:
        """The entries of a model, with the port for shunted packets; None for no such port."""

    def further_files(self, entries: Steps, ids: ControlIds) -> dict[str, str]:
        """Files of entries besides those of ``simple_switch_CLI`` and P4Runtime."""
        return {TUTORIAL: tutorial_runtime(entries)}

    def texts(self, model: ModelT, network: Any, packets: PacketLayout) -> dict[str, str]:
        """Render the program, its entries in the forms of control planes, and the README."""
        entries = self.entries(network, packets.shunt_port)
        ids = ids_of(entries)
        return {
            PROGRAM: self.render("n3ic.p4.j2", model, network, packets, id=ids.annotation),
            COMMANDS: cli_commands(entries),
            P4RUNTIME: p4runtime_requests(entries, ids),
            **dict(zip(P4RUNTIME_TEXTS, p4runtime_texts(entries, ids), strict=True)),
            BFRT: bfrt_calls(entries),
            **self.further_files(entries, ids),
            "README.md": self.render("README.md.j2", model, network, packets),
        }

    def common_entries(
        self, directory: Path, source: str, model: Classifier
    ) -> dict[str, list[DecodedEntry]]:
        """Read the entries of the files that every program has, by name.

        Raises:
            VerifyError: a file is missing, or n3ic writes no such file.
        """
        switch = compile_switch(source, model)
        texts = [read_artefact(directory / name) for name in P4RUNTIME_TEXTS]
        return {
            COMMANDS: from_commands(self.commands(directory), COMMANDS, switch),
            P4RUNTIME: from_p4runtime(read_artefact(directory / P4RUNTIME), P4RUNTIME, source),
            P4RUNTIME_TEXTS[0]: from_p4runtime_texts(texts, P4RUNTIME_TEXTS, source),
            BFRT: from_bfrt(read_artefact(directory / BFRT), BFRT, switch),
        }

    def commands(self, directory: Path) -> str:
        """Read the entries in the format of ``simple_switch_CLI``."""
        return read_artefact(directory / COMMANDS)


def tofino_figures(program: Switch, waiting: int) -> tuple[Figure, ...]:
    """Shares of what one direction of a pipe of Tofino 2 has; above 100 % it does not fit.

    Args:
        program: the compiled program.
        waiting: number of its tables that wait for each other, one after the other.
    """
    tables, bits = len(program.tables), program.metadata_bits + program.header_bits
    shares = {
        "stages": (waiting, _STAGES, "tables wait for each other, at least a stage each, of"),
        "tables": (tables, _STAGES * _TABLES, "tables, of"),
        "phv": (bits, _PHV_BITS, "bits of headers and metadata, packing aside, of"),
    }
    return tuple(
        Figure(
            f"tofino2.{name}",
            round(100 * need / limit, 1),
            "%",
            "estimated",
            f"{need:,} {what} {limit:,} in one direction of a pipe; no compiler of Tofino ran",
        )
        for name, (need, limit, what) in shares.items()
    )
