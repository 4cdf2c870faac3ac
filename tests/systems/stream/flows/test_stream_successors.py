# SPDX-License-Identifier: Apache-2.0
"""A model takes a running one's place amid its flows, or is refused with the reason."""

import hashlib
import json
import re
import warnings
from dataclasses import replace

import pytest

from n3ic.errors import ArgumentError, DataError, N3icWarning, UsageError
from n3ic.meter.standard import standard_spec
from n3ic.model.inputs import InputSpec
from n3ic.systems.stream import followed_model
from n3ic.systems.stream.api import stream as stream_of_python
from n3ic.systems.stream.flows.sources import capture
from n3ic.systems.stream.flows.state import StreamState
from n3ic.systems.stream.learning.pushes import push_to
from tests.support.ipfix import Collector
from tests.support.predicted_rows import predicted
from tests.support.stream_models import binary, lines, stream
from tests.support.stream_peers import messages
from tests.support.traffic import labelled_capture

FLOWS = 60
MODEL, NEXT = binary(1), binary(3)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A capture of some flows, beside the file of a model."""
    monkeypatch.setattr(capture, "PACKETS", 16)
    monkeypatch.setattr(followed_model, "EVERY_S", 0)
    (tmp_path / "c.pcap").write_bytes(labelled_capture(FLOWS)[0])
    MODEL.save(tmp_path / "now.n3ic")
    return tmp_path / "c.pcap"


@pytest.fixture
def pushed(path, monkeypatch):
    """Models that are pushed to the model's file, by the number of a stream's look at it."""
    pushes, looks = {}, 0
    real = followed_model.FollowedModel.successor

    def successor(followed, running):
        nonlocal looks
        looks += 1
        if (model := pushes.get(looks)) is not None:
            push_to(f"file:{followed.path}")(model)
        return real(followed, running)

    monkeypatch.setattr(followed_model.FollowedModel, "successor", successor)
    return pushes


def followed(path, *places, model=MODEL, **settings):
    return stream(path, model, *places, follow=path.parent / "now.n3ic", **settings)


def test_open_flows_go_on_with_the_next_model(path, pushed):
    """Each flow is decided once, with all of its packets, by the model of that time."""
    pushed[10], pushed[20] = NEXT, MODEL
    folder = path.parent
    with warnings.catch_warnings(action="error"):
        figures = followed(path, folder / "out.jsonl", folder / "out.ipfix")
    first, second = (s.flow for s in figures.models[1:])
    assert [s.model for s in figures.models] == [MODEL.digest, NEXT.digest, MODEL.digest]
    assert 0 < first < second < FLOWS
    of_first, of_next = predicted(MODEL, path), predicted(NEXT, path)
    assert of_first[first:second] != of_next[first:second]
    want = of_first[:first] + of_next[first:second] + of_first[second:]
    assert lines(folder / "out.jsonl") == want
    collector = Collector()
    for message in messages((folder / "out.ipfix").read_bytes()):
        collector.take(message)
    (own,) = {enterprise for enterprise, _ in collector.records[0]} - {0}
    digests = [record[own, 4].hex() for record in collector.records]
    assert digests == [(NEXT if first <= n < second else MODEL).digest[:16] for n in range(FLOWS)]


def other_features():
    return replace(NEXT, input=InputSpec(NEXT.input.fields[::-1]))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda: replace(NEXT, meter=standard_spec(packets=5)), "has another meter"),
        (other_features, "reads .*; expected "),
        (
            lambda: NEXT.changed(classes=("a", "d", "e")),
            'decides among a, d, e; expected a, b,"c, d',
        ),
        (lambda: NEXT.changed(shunt=1), 'decides among .*, shunt; expected a, b,"c, d'),
    ],
)
def test_a_model_that_cannot_take_the_place_is_refused_with_the_reason(path, pushed, other, reason):
    """Once, however often the stream looks; a later one that can is taken."""
    pushed[10], pushed[20] = other(), NEXT
    with pytest.warns(N3icWarning, match=reason) as recorder:
        figures = followed(path, path.parent / "out.jsonl")
    (refusal,) = (w.message for w in recorder if issubclass(w.category, N3icWarning))
    assert str(refusal).endswith(f"; the model {MODEL.digest[:12]} goes on")
    assert [s.model for s in figures.models] == [MODEL.digest, NEXT.digest]
    begin = figures.models[1].flow
    assert 0 < begin < FLOWS
    assert lines(path.parent / "out.jsonl") == (
        predicted(MODEL, path)[:begin] + predicted(NEXT, path)[begin:]
    )


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", None])
def test_a_damaged_or_missing_file_changes_nothing(path, damage):
    file = path.parent / "now.n3ic"
    file.write_bytes(damage(NEXT.to_bytes())) if damage else file.unlink()
    if damage:
        with pytest.warns(N3icWarning, match=f"{re.escape(str(file))}.*goes on"):
            followed(path, path.parent / "out.jsonl")
    else:
        followed(path, path.parent / "out.jsonl")
    assert lines(path.parent / "out.jsonl") == predicted(MODEL, path)


def test_a_state_goes_on_with_its_model_whatever_the_file_holds(path, pushed):
    """And without ``follow`` with no other."""
    pushed[10] = NEXT
    folder = path.parent
    place, state = folder / "out.jsonl", {"state": folder / "state"}
    followed(path, place, **state)
    stored_state = StreamState.read(folder / "state")
    assert (stored_state.point.of.model, stored_state.point.running) == (MODEL.digest, NEXT.digest)
    assert stored_state.model == NEXT.to_bytes()
    for model in (MODEL, NEXT):
        assert followed(path, place, model=model, **state).flows == FLOWS
    assert stream(path, NEXT, place, **state).flows == FLOWS
    with pytest.raises(DataError, match=f"its model is '{NEXT.digest}', not '{MODEL.digest}'"):
        stream(path, MODEL, place, **state)
    with pytest.raises(DataError, match=r"another stream: the model .* has another meter"):
        followed(path, place, model=replace(NEXT, meter=standard_spec(packets=5)), **state)


def test_a_state_of_an_older_version_goes_on(path):
    """It has no model, and knows no successors."""
    folder = path.parent
    place, state = folder / "out.jsonl", {"state": folder / "state"}
    stream(path, MODEL, place, seconds=0, **state)
    file = folder / "state" / "stream.state"
    magic, head, packed = file.read_bytes().split(b"\n", 2)
    header = json.loads(head)
    assert header["point"].pop("successors") == []
    header["sizes"].pop()
    packed_bytes = sum(size for _, size in header["sizes"])
    old = b"\n".join((magic, json.dumps(header).encode(), packed[:packed_bytes]))
    file.write_bytes(old + hashlib.sha256(old).digest())
    assert StreamState.read(folder / "state").model == b""
    with pytest.raises(DataError, match=r"its model is"):
        followed(path, place, model=NEXT, **state)
    followed(path, place, **state)
    assert lines(place) == predicted(MODEL, path)


@pytest.mark.parametrize("model", ["now.n3ic", "run"])
def test_the_command_follows_the_file_of_a_model_or_of_a_run(n3ic, path, pushed, model):
    pushed[10] = NEXT
    (path.parent / "run").mkdir()
    MODEL.save(path.parent / "run" / "model.n3ic")
    errors = n3ic(f"stream c.pcap --model {model} --follow --sink out.jsonl").stderr
    (begin,) = map(int, re.findall(f"model {NEXT.digest[:12]} from flow ([0-9]+) on", errors))
    assert lines(path.parent / "out.jsonl") == (
        predicted(MODEL, path)[:begin] + predicted(NEXT, path)[begin:]
    )


def test_what_cannot_be_followed_is_refused(path):
    with pytest.raises(UsageError, match=r"follow: udp:.* gives rows"):
        stream_of_python("udp:127.0.0.1:0", path.parent / "now.n3ic", follow=True)
    with pytest.raises(ArgumentError, match="expected a file to follow, got BinaryModel"):
        stream_of_python(path, MODEL, follow=True)
