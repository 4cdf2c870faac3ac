# SPDX-License-Identifier: Apache-2.0
"""Changes of a P4 card that runs, given by simple_switch_CLI as a process and read back.

The stand-in for simple_switch_CLI holds to the documented rules of its arguments, with the
IndexError of bmv2 1.15.5; behind it stands a switch that keeps state, or is spoilt.
"""

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, UsageError, VerifyError
from n3ic.exporters.p4.interpreter import P4Error
from n3ic.exporters.p4.run import cli
from n3ic.model.random_models import random_model
from n3ic.systems.card import changes as running
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.export import change_card, export_card
from n3ic.systems.card.frames import results_of, traffic, words_of
from n3ic.systems.card.p4.target import CARDS
from n3ic.systems.card.p4.verify import refill, switch_of
from tests.support import software_cards as cards
from tests.support.command_line import n3ic

pytest.importorskip("scipy", reason="needs n3ic[card]")
pytest.importorskip("lark", reason="needs n3ic[p4]")

SHAPE = (6, 3, 2)
POLICY = '{ action = "drop", classes = ["class1"], margin = 1000 }, { action = "forward" }'


class Card:
    """A card of two tenants that was exported, and the switch that runs it."""

    def __init__(self, folder: Path) -> None:
        for seed, name in enumerate("ab"):
            random_model(SHAPE, np.random.default_rng(seed)).save(folder / f"{name}.n3ic")
        self.folder = folder
        (folder / "card.toml").write_text(cards.alone("p4", "ab", policy=POLICY))
        self.plan = cards.plan(folder, (folder / "card.toml").read_text())
        self.card = software_card(self.plan, "p4")
        self.directory = export_card(self.plan, folder / "card", verify=False).directory
        self.source = (self.directory / "n3ic_card.p4").read_text()
        self.commands = (self.directory / "commands.txt").read_text()
        self.asked = {self.card.graphs[a.graph].name: a for a in traffic(self.card, 1)}

    def change(self, verb: str, who: str, to: str, model: Path | None = None) -> str:
        change = running.change_of(self.plan.card, verb, who, model)
        return change_card(self.plan, self.directory, change, to)

    def switch(self):
        return switch_of(self.card, self.source, self.commands)


@pytest.fixture(name="card", scope="module")
def card_fixture(tmp_path_factory) -> Card:
    return Card(tmp_path_factory.mktemp("live"))


@contextmanager
def started(card: Card, commands: str | None = None, spoil: str = ""):
    """A switch that runs the card, given some commands; its port."""
    script = Path(__file__).parents[3] / "exporters" / "p4" / "stand_ins" / "switch.py"
    words = ["--thrift-port", "0", "--notifications-addr", "none"]
    process = subprocess.Popen(
        [sys.executable, str(script), *words, str(card.directory / "n3ic_card.p4")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "N3IC_SPOIL": spoil},
    )
    try:
        port = int(process.stdout.readline().split()[1])
        lines = (card.commands if commands is None else commands).splitlines()
        cli.run_commands(reached(port), lines)
        yield port
    finally:
        process.kill()
        process.communicate()


def reached(port: int) -> list[str]:
    return ["simple_switch_CLI", "--thrift-port", str(port)]


def called(port: int, **request) -> dict:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        stream = connection.makefile("rw")
        stream.write(json.dumps(request) + "\n")
        stream.flush()
        return json.loads(stream.readline())


def answer(card: Card, port: int, graph: str, now: int) -> bytes:
    """Model, class and margin of the answer to one packet of a graph."""
    frame = card.asked[graph].frame.hex()
    got = called(port, do="packet", bytes=frame, now=now * refill(card.card))["bytes"]
    return bytes.fromhex(got)[card.card.result_at :][:10]


def expected(card: Card, graph: str, model) -> bytes:
    index = [g.name for g in card.card.graphs].index(graph)
    each, graph_of = card.asked[graph], card.card.graphs[index]
    field = each.frame[card.card.offset :][: graph_of.input_bytes]
    (_, result), *_ = results_of(model, words_of(model, [field], features=False))
    return result.text


def entries(port: int, tables: list[str]) -> list:
    counts = [(t, called(port, do="count", table=t)["count"]) for t in tables]
    return [called(port, do="get", table=t, handle=h) for t, n in counts for h in range(n)]


@pytest.mark.slow
def test_nothing_behind_the_handle_ends_simple_switch_cli(stand_ins, card) -> None:
    """What a removal was before: the rest of the file never runs."""
    lines = ["table_modify turns no_turn 0", "table_modify turns no_turn 1 =>"]
    with started(card) as port:
        before = entries(port, ["turns"])
        with pytest.raises(
            VerifyError, match=r"ended with 1 at 'table_modify turns no_turn 0': .*"
        ):
            cli.run_commands(reached(port), lines)
        assert entries(port, ["turns"]) == before
        cli.run_commands(reached(port), lines[1:])
        assert entries(port, ["turns"])[1]["action"] == "no_turn"


@pytest.mark.slow
def test_a_tenant_is_removed_loaded_and_replaced_on_a_switch_that_runs(
    stand_ins, card, tmp_path
) -> None:
    new = random_model(SHAPE, np.random.default_rng(7))
    new.save(tmp_path / "new.n3ic")
    old = card.card.networks
    with started(card) as port:
        to, now = f"thrift:localhost:{port}", iter(range(1, 99))
        theirs = expected(card, "a/g", old["a/net"])

        def answers() -> tuple[bytes, bytes]:
            return answer(card, port, "a/g", next(now)), answer(card, port, "b/g", next(now))

        mine = expected(card, "b/g", old["b/net"])
        assert answers() == (theirs, mine)
        # its turn, its entries of the policy and its bucket
        assert "remove confirmed: 6 entries read back" in card.change("remove", "b", to)
        assert answers() == (theirs, bytes(4) + b"\xff\xff" + bytes(4))
        assert "load confirmed" in card.change("load", "b", to)
        assert answers() == (theirs, mine)
        assert "replace confirmed" in card.change("replace", "b", to, tmp_path / "new.n3ic")
        assert answers() == (theirs, expected(card, "b/g", new))
        assert "load confirmed" in card.change("load", "b", to, tmp_path / "new.n3ic")
        assert answers() == (theirs, expected(card, "b/g", new))


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["remove", "load"])
def test_files_of_commands_run_to_their_end(stand_ins, card, tmp_path, verb) -> None:
    """What the export and the command line write, by the switch's own program."""
    report = card.change(verb, "b", str(tmp_path / "change.txt"))
    assert "not yet given to a switch" in report
    name = "4-remove.txt" if verb == "remove" else "4.txt"
    text = (card.directory / "graphs" / name).read_text()
    assert (tmp_path / "change.txt").read_text() == text
    with started(card) as port:
        cli.run_commands(reached(port), text.splitlines())
        gone = answer(card, port, "b/g", 1)[:4] == bytes(4)
    assert gone == (verb == "remove")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "verb", "message"),
    [
        (
            "ignore",
            "remove",
            r"not confirmed; all, some or none of it may have been made: 3 of 6 differ; "
            r"table_dump_entry turns 1: expected keys 0x4 0x0, no_turn, got .*: take_last_turn - ",
        ),
        ("forget", "load", r"not confirmed; .* differ; table_dump_entry"),
    ],
)
def test_a_switch_that_does_not_do_it_is_told(stand_ins, card, spoil, verb, message) -> None:
    with started(card, spoil=spoil) as port, pytest.raises(VerifyError, match=message):
        card.change(verb, "b", f"thrift:{port}")


@pytest.mark.slow
def test_a_switch_that_holds_other_entries_is_not_changed(stand_ins, card) -> None:
    """Handles are the places of entries: in a table that was filled otherwise they are others'."""
    lines = card.commands.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if " turns " in line]
    lines[places[0]], lines[places[1]] = lines[places[1]], lines[places[0]]
    tables = ["turns", "policy"]
    with started(card, "".join(lines)) as port:
        before = entries(port, tables)
        with pytest.raises(
            VerifyError, match=r"nothing was changed: .*turns 1: expected keys 0x4 "
        ):
            card.change("remove", "b", f"thrift:{port}")
        assert entries(port, tables) == before
    refused = pytest.raises(VerifyError, match=r"nothing was changed: .*INVALID_HANDLE")
    with started(card, "") as port, refused:
        card.change("remove", "b", f"thrift:{port}")


@pytest.mark.slow
def test_all_of_a_card_is_read_back(stand_ins, card) -> None:
    """Entries of exact keys and ranges, and meters; each one that differs is found."""
    switch = card.switch()
    commands = switch.read(card.commands)
    with started(card) as port:
        count = cli.confirm(reached(port), switch, commands)
        cleared = card.commands.count("table_clear")
        assert count == len(card.commands.splitlines()) - cleared > 0
        for line, message in (
            ("meter_set_rates tenants 1 1:1 2:2", "1 of .*meter_get_rates tenants 1: expected"),
            ("table_modify police police_tenant 0 0x1", "2 of .*police 0: expected .* 0x0, got"),
        ):
            cli.run_commands(reached(port), [line])
            with pytest.raises(VerifyError, match=message):
                cli.confirm(reached(port), switch, commands)


@pytest.mark.slow
def test_a_refused_command_is_named_though_the_program_ends_well(stand_ins, card) -> None:
    with started(card) as port:
        for line, message in (
            ("table_modify turns gone 0 =>", "Table turns has no action gone"),
            ("table_modify turns no_turn 99 =>", "INVALID_HANDLE|no entry 99"),
            ("nonsense 1", "Unknown syntax"),
        ):
            with pytest.raises(VerifyError, match=rf"refuses '{line}': .*({message})"):
                cli.run_commands(reached(port), [line, "table_dump_entry turns 0"])


def test_no_switch_and_no_tool_are_told(stand_ins, card, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with pytest.raises(
        UsageError, match=rf"thrift:{free}: nothing was changed: .*Could not connect"
    ):
        card.change("remove", "b", f"thrift:{free}")
    for to in ("thrift:", "thrift:0", "thrift:70000", "thrift:-x:9090", "thrift:a b:1"):
        with pytest.raises(UsageError, match="expected thrift:PORT or thrift:HOST:PORT"):
            card.change("remove", "b", to)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingDependencyError, match="needs simple_switch_CLI"):
        card.change("remove", "b", "thrift:9090")


@pytest.mark.parametrize(
    ("name", "old", "new", "error", "message"),
    [
        ("4-remove.txt", " =>", "", P4Error, "crashes simple_switch_CLI"),
        ("4-remove.txt", "turns no_turn 1", "turns no_turn 0", VerifyError, "b/g answers after"),
        (
            "4.txt",
            "take_last_turn 1 0x1 0x2",
            "take_last_turn 1 0x1 0x1",
            VerifyError,
            "b/g answers otherwise",
        ),
    ],
)
def test_files_of_changes_are_verified(card, tmp_path, name, old, new, error, message) -> None:
    directory = export_card(card.plan, tmp_path / "card", verify=False).directory
    CARDS.verify_card(card.plan, directory, 1)
    path = directory / "graphs" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(error, match=message):
        CARDS.verify_card(card.plan, directory, 1)


def test_the_command_line_ends_with_an_error_where_nothing_is_confirmed(stand_ins, card) -> None:
    with started(card, spoil="ignore") as port:
        words = ("card", "remove", "b", "--to", f"thrift:{port}")
        done = n3ic(*words, cwd=card.folder, expect=3)
    assert "the change is not confirmed" in done.stderr and not done.stdout
