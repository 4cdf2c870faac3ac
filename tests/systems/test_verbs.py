# SPDX-License-Identifier: Apache-2.0
"""The verbs of systems give what their commands print, and errors in Python's terms."""

import inspect
import json
from typing import Any

import numpy as np
import pytest

import n3ic
from n3ic.errors import ArgumentError, CardError, ClusterError, DataError, N3icError
from n3ic.model.random_models import random_model
from n3ic.studies.decide import comparison
from n3ic.studies.sweep import training as sweeping
from n3ic.systems.cluster import run as cluster_run
from n3ic.util.json_text import json_text
from tests.support.changing_traffic import tables, traffic, write_table
from tests.support.stream_models import MODELS, lines
from tests.support.traffic import labelled_capture

VERBS = (
    *(
        "audit",
        "compile_cluster",
        "decide",
        "domains",
        "export_card",
        "learn",
        "plan_card",
        "plan_cluster",
        "run_cluster",
        "shifts",
        "shunt",
    ),
    *("simulate_card", "stream", "sweep", "verify_card"),
)


SWEEP: Any = n3ic.sweep  # with a keyword that a type checker refuses, too


@pytest.fixture
def command(request):
    """Runs a typed command; the fixture's own name is the module's here."""
    return request.getfixturevalue("n3ic")


def plain(value):
    return json.loads(json_text(value))


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_a_signature_and_says_what_it_takes(name):
    verb = getattr(n3ic, name)
    parameters = inspect.signature(verb).parameters.values()
    assert all(p.annotation is not inspect.Parameter.empty for p in parameters)
    for parameter in parameters:
        assert f"{parameter.name}:" in verb.__doc__, parameter.name
    assert "Raises:" in verb.__doc__


def test_a_stream_is_that_of_the_command(command, tmp_path):
    model = MODELS["binary"]()
    model.save(tmp_path / "m.n3ic")
    (tmp_path / "c.pcap").write_bytes(labelled_capture(20)[0])
    report = json.loads(command("stream c.pcap --model m.n3ic --sink a.jsonl --json").stdout)
    figures = n3ic.stream(tmp_path / "c.pcap", model, tmp_path / "b.jsonl").to_dict()
    for name in ("packets", "flows", "classes", "dropped", "meter"):
        assert figures[name] == report[name]
    assert lines(tmp_path / "a.jsonl") == lines(tmp_path / "b.jsonl")


class Counted:
    def __init__(self):
        self.flows = 0

    def write(self, batch):
        self.flows += len(batch)


def test_a_stream_gives_flows_to_objects(tmp_path):
    (tmp_path / "c.pcap").write_bytes(labelled_capture(20)[0])
    first, second = Counted(), Counted()
    figures = n3ic.stream(tmp_path / "c.pcap", MODELS["binary"](), [first, second])
    assert first.flows == second.flows == figures.flows == 20


def test_a_stream_gives_flows_to_a_function(tmp_path, capsys):
    (tmp_path / "c.pcap").write_bytes(labelled_capture(20)[0])
    taken = Counted()
    figures = n3ic.stream(tmp_path / "c.pcap", MODELS["binary"](), on_flows=taken.write)
    assert taken.flows == figures.flows == 20
    assert not capsys.readouterr().out  # and to nobody else


@pytest.mark.slow
def test_learning_is_that_of_the_command(command, tmp_path):
    model = tables()
    model.save(tmp_path / "m.n3ic")
    write_table(tmp_path / "flows.csv", traffic(600, 1))
    learn = "stream learn flows.csv --model m.n3ic --folder one --delay 50 --every 200 --guard 1"
    report = json.loads(command(f"{learn} --json").stdout)
    seen = []
    result = n3ic.learn(
        tmp_path / "flows.csv",
        tmp_path / "two",
        model,
        delay=50,
        every=200,
        guard=1,
        watch=seen.append,
    )
    own_report = plain(result.to_dict())
    for decision in (*report["decisions"], *own_report["decisions"]):
        decision.pop("at", None)
    assert own_report == report
    assert seen[-1].flows == 600 and f"{result.counts['flows labelled']:,} flows" in repr(result)
    with pytest.raises(ArgumentError, match="model"):
        n3ic.learn(tmp_path / "flows.csv", tmp_path / "two", model, delay=50)


def test_a_card_is_that_of_the_command(command, tmp_path):
    pytest.importorskip("scipy")
    random_model((64, 8, 2), np.random.default_rng(0)).save(tmp_path / "a.n3ic")
    command("card init a.n3ic --target host")
    report = json.loads(command("card plan --json").stdout)
    assert plain(n3ic.plan_card(tmp_path / "card.toml").to_dict()) == report
    command("card export --no-verify --out typed")
    done = n3ic.export_card(tmp_path / "card.toml", tmp_path / "called", verify=False)
    assert done.check is None
    for path in sorted((tmp_path / "typed").rglob("*")):
        if path.is_file():
            called = tmp_path / "called" / path.relative_to(tmp_path / "typed")
            assert called.read_bytes() == path.read_bytes()
    assert not [p for p in (tmp_path / "called").rglob("*") if not typed(tmp_path, p).exists()]


def test_a_simulated_card_is_that_of_the_command(command, tmp_path):
    pytest.importorskip("scipy")
    random_model((64, 8, 2), np.random.default_rng(0)).save(tmp_path / "a.n3ic")
    command("card init a.n3ic --target netfpga")
    words = "--seconds 0.0001 --load poisson*2 --policy chains --policy static --seed 3"
    printed = json.loads(command(f"card simulate {words} --json").stdout)
    options = {"load": ["poisson*2"], "policy": ["chains", "static"], "seed": 3}
    simulation = n3ic.simulate_card(tmp_path / "card.toml", seconds=0.0001, **options)
    assert plain(simulation.to_dict()) == printed
    assert "chains, static" in repr(simulation)
    for wrong, message in (
        ({"seconds": 0}, "seconds: expected more than 0"),
        ({"policy": ["none"]}, "policy: expected one of"),
        ({"load": ["rain"]}, "load"),
    ):
        with pytest.raises(ArgumentError, match=message):
            n3ic.simulate_card(tmp_path / "card.toml", **wrong)


def typed(folder, path):
    return folder / "typed" / path.relative_to(folder / "called")


def test_a_cluster_is_that_of_the_command(command, tmp_path):
    model = random_model((128, 64, 4), np.random.default_rng(0))
    model.save(tmp_path / "m.n3ic")
    for words, more in (
        ("m.n3ic -n 2", {"model": tmp_path / "m.n3ic", "nodes": 2}),
        (
            "m.n3ic --split output,replicated -t host",
            {"model": model, "split": ("output", "replicated"), "target": "host"},
        ),
        ("--shape 128-64-4 --for latency", {"shape": (128, 64, 4), "goal": "latency"}),
    ):
        report = json.loads(command(f"cluster plan {words} --json").stdout)
        assert plain(n3ic.plan_cluster(**more).to_dict()) == report


def test_a_ring_gets_what_the_command_gives_it(command, tmp_path, monkeypatch):
    """The ring itself is measured, so that no two runs are equal: what starts it is compared."""
    model = random_model((128, 64, 4), np.random.default_rng(0))
    model.save(tmp_path / "m.n3ic")
    (tmp_path / "t.csv").write_text("x0,x1,x2,x3,x4,x5,x6,x7\n" + "1,2,3,4,5,6,7,8\n" * 9)
    calls = []

    def started(model, placement, words, options, simulated, say):
        calls.append((model.digest, placement, words.tolist(), options, dict(simulated)))
        raise ClusterError("started")

    monkeypatch.setattr(cluster_run, "_run", started)
    command("cluster run m.n3ic --nodes 2 --split input --rows 9 --seed 3 --loss 0.1", expect=1)
    with pytest.raises(ClusterError, match="started"):
        n3ic.run_cluster(model, nodes=2, split="input", rows=9, seed=3, loss=0.1)
    command("cluster run m.n3ic --card 2=127.0.0.1:9 --address 0=127.0.0.1:8 --simulate 1=netfpga "
         "--nodes 3 --dask tcp://here:1 --limit 2", expect=1)  # fmt: skip
    with pytest.raises(ClusterError, match="started"):
        n3ic.run_cluster(
            tmp_path / "m.n3ic",
            nodes=3,
            cards={2: ("127.0.0.1", 9)},
            addresses={0: ("127.0.0.1", 8)},
            simulate={1: "netfpga"},
            dask="tcp://here:1",
            limit=2,
        )
    assert len(calls) == 4
    assert calls[0] == calls[1]
    assert calls[2] == calls[3] != calls[0]


@pytest.mark.slow
def test_an_audit_is_that_of_the_command(command, tmp_path):
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    rows = ["proto,ttl,bytes,packets,label"]
    for _ in range(600):
        attack = rng.random() < 0.5
        ttl = 254 if rng.random() < (0.9 if attack else 0.2) else 31
        size = int(rng.integers(900, 1500) if ttl == 254 else rng.integers(40, 800))
        rows.append(f"6,{ttl},{size},{rng.poisson(5)},{'attack' if attack else 'benign'}")
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    words = "data audit t.csv --label label --pairs 0 --losses 1 --mark ttl --json"
    report = json.loads(command(words).stdout)
    audit = n3ic.audit(tmp_path / "t.csv", label="label", pairs=0, losses=1, marks=("ttl",))
    assert "bytes" in audit.leaking
    assert plain(audit.to_dict()) | {"name": ""} == report | {"name": ""}


def test_decisions_are_asked_for_as_the_command_does(command, tmp_path, monkeypatch):
    requests = requested(monkeypatch, comparison, "compare_decisions")
    head = "source,source_port,destination,destination_port,protocol,label\n"
    (tmp_path / "l.csv").write_text(head + "1.1.1.1,1,2.2.2.2,2,tcp,web\n")
    command(
        "decide c.pcap --labels l.csv --packets 2,end --epochs 3 --hidden 8 --seeds 2 --out o",
        expect=1,
    )
    with pytest.raises(DataError, match="asked"):
        n3ic.decide(
            "c.pcap",
            tmp_path / "l.csv",
            packets=(2, "end"),
            epochs=3,
            hidden=[8],
            seeds=2,
            out="o",
        )
    one, two = ({**vars(r), "labels": None} for r in requests)
    assert one == two
    assert (one["packets"], one["recipe"].training.epochs) == ((2, 0), 3)


def test_a_sweep_is_asked_for_as_the_command_does(command, tmp_path, monkeypatch):
    requests = requested(monkeypatch, sweeping, "sweep_use_case")
    (tmp_path / "t.csv").write_text("a,b,label\n1,2,x\n")
    words = f"sweep --data {tmp_path}/t.csv --label label --target host --seeds 2"
    command(f"{words} --budget-bytes 200,400 --epochs 2 --no-batch-norm", expect=1)
    with pytest.raises(DataError, match="asked"):
        n3ic.sweep(
            str(tmp_path / "t.csv"),
            {"budget_bytes": (200, 400), "epochs": (2,)},
            label="label",
            batch_norm=False,
            target="host",
            seeds=2,
        )
    one, two = (
        {**vars(r), "base": None, "target_options": r.target_options or {}} for r in requests
    )
    assert one == two
    typed, called = (vars(r.base) for r in requests)
    given = ("use_case", "overrides", "options", "seed", "seeds", "recipe", "protocol", "jobs")
    assert {n: typed[n] for n in given} == {n: called[n] for n in given}


def requested(monkeypatch, module, name):
    """The requests that a function of a module is called with, in a list that grows."""
    requests = []

    def asked(request, progress):
        requests.append(request)
        raise DataError("asked")

    monkeypatch.setattr(module, name, asked)
    return requests


MISTAKES = {
    "a source": (lambda: n3ic.stream("afxdp:x", MODELS["binary"]()), "did you mean 'af_xdp'"),
    "a sink": (lambda: n3ic.stream("-", MODELS["binary"](), 3), "sink: expected a file"),
    "a place twice": (lambda: n3ic.stream("-", MODELS["binary"](), ["-", "-"]), "^sink: the same"),
    "no model": (lambda: n3ic.plan_cluster(), "expected a model or a shape"),
    "a split": (lambda: n3ic.plan_cluster(shape=(8, 4), split="half"), "^split: expected output"),
    "a value": (lambda: SWEEP("anomaly", epoch=1), "no argument 'epoch'; did you mean 'epo"),
    "an aim": (lambda: n3ic.shunt("m.n3ic", accuracy=1, host_load=1), "^(?!.*--)"),
    "a bar": (lambda: n3ic.audit("t.csv", bar=0.1), "expected a bar above 0.5"),
    "a packet": (lambda: n3ic.decide("c.pcap", labels_of(), packets=(-1,)), "distinct numbers"),
}


def labels_of():
    from n3ic.meter.labels import Labels

    return Labels.__new__(Labels)


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_told_in_pythons_terms(what):
    call, message = MISTAKES[what]
    with pytest.raises(ArgumentError, match=message):
        call()


def test_a_rate_that_cannot_be_guaranteed_is_told_in_pythons_terms(command, tmp_path):
    pytest.importorskip("scipy")
    random_model((64, 8, 2), np.random.default_rng(0)).save(tmp_path / "a.n3ic")
    command("card init a.n3ic --target host --wants '1e12 inferences/s'")
    with pytest.raises(CardError, match="ask for less, or add best_effort=True"):
        n3ic.plan_card(tmp_path / "card.toml")
    assert n3ic.plan_card(tmp_path / "card.toml", best_effort=True).problems
    with pytest.raises(N3icError, match="is for target 'host', not 'p4'"):
        n3ic.export_card(tmp_path / "card.toml", tmp_path / "out", target="p4")
