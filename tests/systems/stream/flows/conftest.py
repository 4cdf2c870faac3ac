# SPDX-License-Identifier: Apache-2.0
"""Peers of a stream's sinks: librdkafka's mock cluster, Debian's NATS server."""

import shutil
import socket
import subprocess

import pytest

from tests.support.stream_peers import with_stream


@pytest.fixture(scope="module")
def broker():
    """Address of a mock cluster of Kafka in this process."""
    Producer = pytest.importorskip("confluent_kafka").Producer
    host = Producer({"bootstrap.servers": "none:1", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = host.list_topics(timeout=60).brokers.values()
    yield ",".join(f"{b.host}:{b.port}" for b in brokers)


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory):
    """Address of a NATS server with a JetStream stream of the subjects ``flows.*``."""
    pytest.importorskip("nats")
    if not shutil.which("nats-server"):
        pytest.skip("needs nats-server (apt-get install nats-server)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("nats")
    command = ["nats-server", "-js", "-sd", folder, "-a", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            for line in server.stderr:
                if "Server is ready" in line:
                    break
            with_stream(f"127.0.0.1:{port}", ["flows.*"])
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()
