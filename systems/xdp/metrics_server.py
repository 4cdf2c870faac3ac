# SPDX-License-Identifier: Apache-2.0
"""Serves figures to Prometheus, and ends idle flows meanwhile."""

from __future__ import annotations

import time

from n3ic.cli.console import print_note
from n3ic.errors import UsageError
from n3ic.systems.xdp.daemon_requests import runs
from n3ic.systems.xdp.deployment import is_attached, open_program
from n3ic.systems.xdp.program_record import DaemonRecord, Interface
from n3ic.systems.xdp.prometheus import registry
from n3ic.systems.xdp.status import status, sweep
from n3ic.util.signals import check

SWEEP_S = 1.0


def serve(interface: Interface, address: str, port: int, *, seconds: float | None) -> None:
    """Serve the figures of an interface's program until interrupted.

    Args:
        interface: interface of the program.
        address: address to listen on.
        port: port to listen on; 0 for any free port.
        seconds: time limit in seconds; None for no limit.

    Raises:
        UsageError: No program is loaded there (any more), or the port is in use.
        MissingDependencyError: prometheus-client is not installed.
    """
    collectors = registry(lambda: status(interface))
    from prometheus_client import start_http_server

    with open_program(interface):
        pass
    try:
        server, thread = start_http_server(port, address, collectors)
    except OSError as error:
        raise UsageError(f"{address}:{port}: {error.strerror or error}") from error
    print_note(f"http://{address}:{server.server_port}/metrics")
    end = None if seconds is None else time.monotonic() + seconds
    try:
        while end is None or time.monotonic() < end:
            with open_program(interface, ending=True) as (record, programs, _):
                while is_attached(interface, record) and (end is None or time.monotonic() < end):
                    if not (isinstance(record, DaemonRecord) and runs(record)):
                        sweep(record, programs)
                    time.sleep(SWEEP_S)
                    check()
    finally:
        server.shutdown()
        thread.join()
