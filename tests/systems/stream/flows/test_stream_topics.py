# SPDX-License-Identifier: Apache-2.0
"""Streams of several hosts that meet in a topic of Kafka."""

import json
from typing import Any

import numpy as np
import pytest

from n3ic.errors import DataError, UsageError
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.pipeline import FlowStream, StreamSettings
from n3ic.systems.stream.flows.sink import open_sink
from n3ic.systems.stream.flows.source import open_source
from tests.support.stream_models import MODELS, binary, lines
from tests.support.traffic import labelled_capture

HOSTS = 3


def run(source, model, place, **settings):
    chosen = StreamModel(model, with_features=True)
    return FlowStream(
        source, chosen, [open_sink(str(place), chosen)], StreamSettings(**settings)
    ).run()


def send(broker, topic, *messages):
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": broker, "message.max.bytes": 2_000_000, "log_level": 0}
    )
    for message in messages:
        producer.produce(topic, message)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    """A capture of each host."""
    folder = tmp_path_factory.mktemp("hosts")
    paths = [folder / f"{number}.pcap" for number in range(HOSTS)]
    for number, path in enumerate(paths):
        path.write_bytes(labelled_capture(40, seed=number)[0])
    return paths


@pytest.fixture(scope="module")
def topic(broker, captures, tmp_path_factory):
    """A topic that the streams of all hosts wrote, and the flows of each in a file."""
    model, folder = MODELS["binary"](), tmp_path_factory.mktemp("written")
    name = "met"
    for number, capture in enumerate(captures):
        for place in (f"kafka://{broker}/{name}", folder / f"{number}.jsonl"):
            run(open_source(str(capture), model), model, place)
    rows = [row for number in range(HOSTS) for row in lines(folder / f"{number}.jsonl")]
    return f"kafka://{broker}/{name}", rows


def unnumbered_rows(rows):
    """Rows without their numbers, in an order of their own."""
    return sorted(json.dumps({k: v for k, v in row.items() if k != "row"}) for row in rows)


def test_streams_of_several_hosts_meet(topic, tmp_path):
    """A second model decides the flows of all hosts, on the same features."""
    url, rows = topic
    first, second = binary(), binary(seed=9)
    run(open_source(f"{url}?until=now", first), first, tmp_path / "same.jsonl")
    assert unnumbered_rows(lines(tmp_path / "same.jsonl")) == unnumbered_rows(rows)
    run(open_source(f"{url}?until=now", second), second, tmp_path / "other.jsonl")
    other_rows = lines(tmp_path / "other.jsonl")
    features = {
        name: np.array([row[f"feature_{name}"] for row in other_rows], dtype=np.uint32)
        for name in second.input.features
    }
    scores = second.scores(second.encode(features))
    assert [[row[f"score_{c}"] for c in second.classes] for row in other_rows] == scores.tolist()
    assert unnumbered_rows(other_rows) != unnumbered_rows(rows)


def test_a_consumer_goes_on_where_its_state_is(topic, tmp_path, monkeypatch):
    """Small batches, and a stop within: no flow is lost or read twice."""
    from n3ic.systems.stream.flows.sources import kafka

    monkeypatch.setattr(kafka, "MESSAGES", 7)
    url, rows = topic
    model = MODELS["binary"]()
    out, state = tmp_path / "out.jsonl", tmp_path / "state"
    counts = []
    for stops in (True, False):
        source = open_source(f"{url}?until=now", model)
        chosen = StreamModel(model, with_features=True)
        stream = FlowStream(
            source, chosen, [open_sink(str(out), chosen)], StreamSettings(state=state)
        )
        if stops:
            batches = source.batches

            def three(position, batches=batches, stream=stream):
                for number, batch in enumerate(batches(position)):
                    yield batch
                    if number == 2:
                        stream._stop_source()

            monkeypatch.setattr(source, "batches", three)
        stream.run()
        counts.append(len(lines(out)))
    assert 0 < counts[0] < counts[1] == len(rows)
    assert unnumbered_rows(lines(out)) == unnumbered_rows(rows)
    run(open_source(f"{url}?until=now", model), model, out, state=state)
    assert len(lines(out)) == len(rows)


def partitions_of(url):
    """Numbers of a topic's partitions."""
    from confluent_kafka import Consumer

    place, topic = url.removeprefix("kafka://").split("/")
    consumer = Consumer({"bootstrap.servers": place, "group.id": "counter", "log_level": 0})
    try:
        return list(consumer.list_topics(topic, 30).topics[topic].partitions)
    finally:
        consumer.close()


def test_consumers_share_the_partitions(topic, tmp_path):
    """Each reads its own; together they have all flows."""
    url, rows = topic
    model = MODELS["binary"]()
    partitions = len(partitions_of(url))
    assert partitions > 1
    halves = [",".join(map(str, range(n, partitions, 2))) for n in range(2)]
    parts = []
    for number, half in enumerate(halves):
        place = tmp_path / f"{number}.jsonl"
        run(
            open_source(f"{url}?until=now&partitions={half}", model),
            model,
            place,
        )
        parts.append(lines(place))
    assert all(parts)
    assert unnumbered_rows([row for part in parts for row in part]) == unnumbered_rows(rows)


def test_messages_that_are_no_flows_are_counted(broker, tmp_path):
    """Whoever writes into the topic can add flows, and nothing else."""
    model = MODELS["binary"]()
    good = {f"feature_{name}": i for i, name in enumerate(model.input.features)}
    first = next(iter(good))
    wrong: dict[str, Any] = {
        "not JSON": [b"", b"{", b"\xff", b"[" * 100_000],
        "not a flow": [b"3", b"[]"],
        "a feature is missing": [b"{}", {k: v for k, v in good.items() if k != first}],
        "a value is out of range": [
            good | {first: v} for v in (-1, 1 << 32, 1.5, True, "3", None, [1])
        ]
        + [good | {"source_port": 1 << 16}, good | {"packets": -1}],
        "an address is wrong": [
            good | {"source": "1.2.3"},
            good | {"destination": 7},
            good | {"source": "192.0.2.1", "destination": "::1"},
        ],
        "message too long": [b" " * (1 << 20) + b"{}"],
    }
    send(
        broker,
        "damaged",
        json.dumps(good | {"source": "2001:db8::2", "destination": "2001:db8::1"}),
        *(m if isinstance(m, bytes) else json.dumps(m) for part in wrong.values() for m in part),
        json.dumps(good),
    )
    url = f"kafka://{broker}/damaged"
    out = tmp_path / "out.jsonl"
    figures = run(
        open_source(f"{url}?until=now&fetch.message.max.bytes=4000000", model), model, out
    )
    assert len(lines(out)) == 2
    assert figures.lost == {f"{url}: {reason}": len(part) for reason, part in wrong.items()}


def test_places_that_cannot_be_read(broker, topic, tmp_path):
    """Each is refused with its reason."""
    model = MODELS["binary"]()
    for text, message in (
        ("kafka://", "expected kafka://HOST"),
        (f"kafka://{broker}", "expected kafka://HOST"),
        (f"kafka://{broker}/a/b", "expected kafka://HOST"),
        (f"{topic[0]}?partitions=x", "expected numbers"),
        (f"{topic[0]}?until=noon", "expected now"),
    ):
        with pytest.raises(UsageError, match=message):
            open_source(text, model)
    with pytest.raises(DataError, match="no partition 99"):
        open_source(f"{topic[0]}?partitions=99", model)
    with pytest.raises(DataError, match="kafka"):
        open_source(f"{topic[0]}?no.such.setting=1", model)
