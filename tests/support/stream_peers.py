# SPDX-License-Identifier: Apache-2.0
"""What the peers of a stream's sinks hold: files of IPFIX, topics of Kafka, subjects of NATS."""

import asyncio
import struct


def messages(data):
    """The messages of a file of IPFIX."""
    while data:
        (size,) = struct.unpack_from(">H", data, 2)
        yield data[:size]
        data = data[size:]


def topic_rows(broker, topic):
    """Values of all committed messages of a topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        rows, ended = [], 0
        while ended < len(partitions):
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                ended += 1
            else:
                rows.append(message.value())
        return rows
    finally:
        consumer.close()


def subject_rows(server, subject):
    """Payloads of all messages of a subject, in their order."""
    import nats

    async def read():
        client = await nats.connect(f"nats://{server}")
        subscription = await client.jetstream().pull_subscribe(subject)
        rows = []
        while (await subscription.consumer_info()).num_pending:
            rows += [message.data for message in await subscription.fetch(1000, timeout=60)]
        await client.close()
        return rows

    return asyncio.run(read())


def with_stream(server, subjects):
    """Make a JetStream stream."""
    import nats

    async def make():
        client = await nats.connect(f"nats://{server}")
        await client.jetstream().add_stream(name="flows", subjects=subjects)
        await client.close()

    asyncio.run(make())
