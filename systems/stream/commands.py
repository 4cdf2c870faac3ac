# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream``: a source of packets, or one of the commands below.

This module must import quickly: a command imports what it needs when it runs.
"""

from __future__ import annotations

import typer
from typer.core import TyperGroup

from n3ic.systems.stream.flows.commands import run
from n3ic.systems.stream.functions.commands import FUNCTIONS
from n3ic.systems.stream.learning.commands import (
    drift,
    history,
    learn,
    rollback,
    second_stage,
)
from n3ic.systems.stream.messages import commands as messages


class _SourceOrCommand(TyperGroup):
    """A group whose first word may be a source: ``n3ic stream SOURCE`` is ``stream run SOURCE``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put ``run`` before a source."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


COMMANDS = typer.Typer(
    cls=_SourceOrCommand,
    help="Infer and learn on a stream: packets to flows to verdicts to sinks.",
    no_args_is_help=True,
    rich_help_panel="Deploy",
)
COMMANDS.command("run")(run)
COMMANDS.command("send")(messages.send)
COMMANDS.command("receive")(messages.receive)
COMMANDS.add_typer(FUNCTIONS, name="functions")
COMMANDS.command("learn")(learn)
COMMANDS.command("rollback")(rollback)
COMMANDS.command("history")(history)
COMMANDS.command("second-stage")(second_stage)
COMMANDS.command("drift")(drift)
