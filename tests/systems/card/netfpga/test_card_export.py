# SPDX-License-Identifier: Apache-2.0
"""From a card.toml to one image: ``n3ic card export`` and ``verify``."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from n3ic.cli.main import command_line
from n3ic.errors import CardError, UsageError, VerifyError
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.model.network import BinaryModel
from n3ic.systems.card.description import Rate
from n3ic.systems.card.export import export_card, verify_card
from n3ic.systems.card.netfpga.compile import image_of
from n3ic.systems.card.netfpga.image import CoreTask, NetfpgaCardImage
from n3ic.systems.card.parser import parse_card
from n3ic.systems.card.planner import plan_card
from tests.support import small_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")
needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")


def run(*words: str) -> None:
    """A command line, as typed behind ``n3ic``."""
    command_line(words)(list(words), standalone_mode=False)


TASK = """
[[tenants.tasks]]
name = "{name}"
kind = "network"
model = "{name}.n3ic"
"""
MINE = """
[[tenants.tasks]]
name = "mine"
kind = "verilog"
sources = ["mine.v"]
top = "mine"
needs = { lut_sites = 10 }
rate = "1e6 packets/s"
"""
STAGE = """
[[tenants.tasks]]
name = "stage"
kind = "input"
model = "f.n3ic"
"""


def folder(path: Path) -> Path:
    """Models: three of one shape, one of another."""
    for seed, name in enumerate(("a0", "a1", "a2"), start=1):
        cards.net((24, 8, 2), seed).save(path / f"{name}.n3ic")
    cards.net((40, 8, 4, 3), 4).save(path / "b.n3ic")
    return path


def text(flow: str = '{ join = "vote", branches = [["a0"], ["a1"], ["a2"]] }') -> str:
    tasks = "".join(TASK.format(name=name) for name in ("a0", "a1", "a2"))
    return f"""
name = "lab"
[device]
target = "netfpga"
regions = 2
[[tenants]]
name = "alpha"
{tasks}
[[tenants.graphs]]
name = "paths"
uid = 7
wants = "100000 packets/s"
flow = [{flow}]
[[tenants]]
name = "beta"
ports = [1, 4]
{TASK.format(name="b")}
[[tenants.tasks]]
name = "guard"
kind = "policy"
rules = [{{ action = "drop", classes = ["class1"], margin = 3 }}]
[[tenants.graphs]]
name = "attacks"
uid = 9
wants = "200000 packets/s"
flow = ["b", "guard"]
"""


def image(tmp_path: Path, document: str) -> NetfpgaCardImage:
    plan = plan_card(parse_card(document, "card.toml", folder(tmp_path)))
    return image_of(plan, EXPORTER.options, 200e6)


@pytest.mark.slow
def test_networks_of_one_shape_share_an_executor(tmp_path: Path) -> None:
    design = image(tmp_path, text())
    assert sorted(len(core.models) for core in design.cores) == [1, 3]
    paths = design.graphs[0]
    assert [branch[0].model for branch in paths.branches] == [0, 1, 2]
    assert (paths.uid, paths.join, design.offset) == (7, "vote", 26)
    assert design.graphs[1].rules[0].drop
    assert [g.sources for g in design.graphs] == [0xFF, 0x05]
    # 100,000 packets of two beats a second at 200 MHz, rounded up.
    assert [t.rate for t in design.tenants] == [66, 132]


@pytest.mark.slow
def test_turns_beyond_the_guarantee_are_longer_by_cost_and_shorter_by_share(
    tmp_path: Path,
) -> None:
    plan = plan_card(parse_card(text(), "card.toml", folder(tmp_path)))

    def steps(share: float, rate: float) -> float:
        """Beta's turn over alpha's, for beta's share of the card and its network's rate."""
        alpha, beta = plan.shares
        shares = (alpha, replace(beta, granted={beta.dominant: share}))
        fast = replace(plan.costs["beta/b"], rate=Rate(rate, "packets/s"))
        costs = {**plan.costs, "beta/b": fast}
        made = image_of(replace(plan, shares=shares, costs=costs), EXPORTER.options, 200e6)
        assert max(g.step for g in made.graphs) == 4095
        return made.graphs[1].step / made.graphs[0].step

    assert steps(0.1, 1e6) == pytest.approx(3 * steps(0.3, 1e6), rel=0.01)
    assert steps(0.1, 1e6) == pytest.approx(2 * steps(0.1, 2e6), rel=0.01)


@pytest.mark.slow
def test_executors_are_shared_only_as_far_as_their_time_goes(tmp_path: Path) -> None:
    """An executor of an inference in seven clocks, three networks of 14 million a second each."""
    plan = plan_card(parse_card(text(), "card.toml", folder(tmp_path)))
    guaranteed = [replace(g, guaranteed=14e6) for g in plan.graphs]
    design = image_of(replace(plan, graphs=tuple(guaranteed)), EXPORTER.options, 200e6)
    assert sorted(len(core.models) for core in design.cores) == [1, 1, 2]


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ('{ join = "both", branches = [["a0"], ["a1"]] }, "a2"', "'alpha/a2' after network"),
        (
            '{ join = "both", branches = [["a0"], '
            '[{ join = "both", branches = [["a1"], ["a2"]] }]] }',
            "allows one join in a flow",
        ),
    ],
)
def test_a_flow_that_the_card_lacks_is_refused(tmp_path: Path, flow: str, message: str) -> None:
    with pytest.raises(CardError, match=message):
        image(tmp_path, text(flow))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("module mine (); initial $fopen(1); endmodule", r"got \$fopen"),
        ('`include "/etc/passwd"\nmodule mine (); endmodule', "got `include"),
        ("module other (); endmodule", "expected a module mine"),
        ("module mine (); endmodule\nmodule n3ic_fifo (); endmodule", "n3ic_"),
    ],
)
def test_hostile_verilog_of_a_user_is_refused(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "mine.v").write_text(source)
    document = text().replace('flow = ["b", "guard"]', 'flow = ["mine", "b", "guard"]')
    document = document.replace("ports = [1, 4]\n", f"ports = [1, 4]\n{MINE}")
    with pytest.raises(CardError, match=message):
        image(tmp_path, document)


def test_input_stages_and_users_tasks(tmp_path: Path) -> None:
    """A packet runs through the input stage and the network of one region in one pass."""
    base = cards.net((40, 8, 4, 3), 4)
    featured = BinaryModel(cards.SPEC, base.hidden, base.output, base.classes, name="f")
    featured.save(tmp_path / "f.n3ic")
    (tmp_path / "mine.v").write_text("module mine (); endmodule")
    document = text().replace('flow = ["b", "guard"]', 'flow = ["stage", "f", "guard"]')
    document = document.replace(TASK.format(name="b"), TASK.format(name="f") + STAGE)
    design = image(tmp_path, document)
    graph = design.graphs[1]
    assert graph.input_bytes == 16
    (leg,) = graph.branches[0]
    assert [design.regions[leg.regions[0]].tasks[k].kind for k in leg.tasks] == ["input", "core"]
    document = text().replace("ports = [1, 4]\n", f"ports = [1, 4]\n{MINE}")
    design = image(tmp_path, document.replace('["b", "guard"]', '["mine", "b", "guard"]'))
    (leg,) = design.graphs[1].branches[0]
    assert [design.regions[leg.regions[0]].tasks[k].kind for k in leg.tasks] == ["user", "core"]
    assert design.graphs[1].input_bytes == 32


@needs_icarus
def test_export_and_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder(tmp_path) / "card.toml").write_text(text())
    card, out = str(tmp_path / "card.toml"), tmp_path / "out"
    run("card", "export", card, "--out", str(out), "--packets", "8", "--target", "netfpga")
    assert (out / "rtl" / "n3ic_card.v").is_file()
    for path in (out / "rtl").glob("*.v"):
        assert path.read_text().endswith("endmodule\n`default_nettype wire\n"), path.name
    assert "alpha/paths" in (out / "report.md").read_text()
    run("card", "verify", str(out), "--card", card, "--packets", "8")
    assert "2 graphs interleaved" in capsys.readouterr().out.replace("\n", " ")
    with pytest.raises(UsageError, match="is for target 'netfpga'"):
        run("card", "export", card, "--target", "p4")


@pytest.mark.slow
@needs_icarus
def test_verification_finds_what_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_card(parse_card(text(), "card.toml", folder(tmp_path)))
    out = tmp_path / "out"
    export_card(plan, out, verify=False)
    weights = out / "mem" / next(p.name for p in (out / "mem").glob("*layer0_weights.mem"))
    original = weights.read_text()
    weights.write_text(original.replace("f", "e", 1))
    with pytest.raises(VerifyError, match=f"{weights.name}: not what n3ic"):
        verify_card(plan, out, 4)
    weights.write_text(original)
    (out / "rtl" / "more.v").write_text("module more (); endmodule\n")
    with pytest.raises(VerifyError, match=r"more\.v: n3ic writes no such file"):
        verify_card(plan, out, 4)
    # One weight bit that is wrong in what is written is found by simulation.
    from n3ic.systems.card.netfpga import target

    written = target.write_card

    def wrong(card: NetfpgaCardImage, directory: Path) -> None:
        written(card, directory)
        for path in (directory / "mem").glob("*layer0_weights.mem"):
            lines = path.read_text().splitlines()
            flipped = [f"{int(line, 16) ^ 1:0{len(line)}x}" for line in lines]
            path.write_text("\n".join(flipped) + "\n")

    monkeypatch.setattr(target, "write_card", wrong)
    with pytest.raises(VerifyError, match=r"packet|layer"):
        export_card(plan, tmp_path / "wrong", packets=6)
    assert not (tmp_path / "wrong").exists()


@pytest.mark.exhaustive
@needs_icarus
def test_seventeen_queues_and_the_anomalies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two tenants on one card: 17 networks that read one packet, and one of its own."""
    models = tmp_path / "queues" / "models"
    models.mkdir(parents=True)
    for queue in range(17):
        cards.net((152, 32, 16, 2), queue).save(models / f"q{queue:02d}.n3ic")
    cards.net((256, 32, 16, 2), 99).save(tmp_path / "anomaly.n3ic")
    card, out = str(tmp_path / "card.toml"), str(tmp_path / "out")
    sources = [str(tmp_path / "queues"), str(tmp_path / "anomaly.n3ic")]
    run("card", "init", *sources, "--out", card)
    run("card", "export", card, "--out", out, "--packets", "3")
    assert "54 inferences equal" in capsys.readouterr().out.replace("\n", " ")


def test_cores_are_what_they_say() -> None:
    core = cards.core(cards.net((24, 8, 2), 1), cards.net((24, 8, 2), 2))
    assert isinstance(core, CoreTask)
    assert core.comment == "2 networks 24-8-2, sequential"
