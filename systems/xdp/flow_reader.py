# SPDX-License-Identifier: Apache-2.0
"""Reads the flows that a running ``n3icd`` decides."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.meter.compiled import ENDS
from n3ic.model.meter_spec import MeterSpec
from n3ic.systems.xdp.daemon_requests import not_running
from n3ic.systems.xdp.program_record import (
    Interface,
    find_record,
    network_namespace,
    read_record,
)
from n3ic.util.signals import check

_LINE = 1 << 24  # maximum bytes of a line
_PATIENCE_S = 60.0  # with a greeting
_SUCCEEDED_S = 30.0  # with the n3icd that an update brings
_LOOK_S = 0.05


class FlowReader:
    """A reader of the flows that a running ``n3icd`` decides.

    It goes on with the n3icd that an update brings.

    Args:
        interface: interface of the daemon.

    Raises:
        UsageError: No program is loaded there, or n3icd is not running.
    """

    def __init__(self, interface: Interface) -> None:
        self.lost = 0
        """Flows that came too fast for this reader."""
        self._interface, self._waiting = interface, list[dict[str, Any]]()
        self._connect()

    def _connect(self) -> None:
        self._path, self._partial = read_record(self._interface).socket, b""
        self._is_greeted = False
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(self._path)
            self._greet()
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError):
                raise UsageError(not_running(self._interface)) from error
            raise

    def _greet(self) -> None:
        hello: list[dict[str, Any]] = []
        end = time.monotonic() + _PATIENCE_S
        while not hello and time.monotonic() < end:
            hello = self._receive(_PATIENCE_S)
        if not hello:
            raise UsageError(f"{self._path}: n3icd does not answer")
        here = (self._interface.index, network_namespace())
        if (hello[0].get("index"), hello[0].get("namespace")) != here:
            raise UsageError(f"{self._path}: the n3icd of another interface")
        self._is_greeted, self._waiting = True, hello[1:]

    def _connect_again(self) -> None:
        """Wait for the n3icd that succeeds the one that ended."""
        self._socket.close()
        end = time.monotonic() + _SUCCEEDED_S
        while True:
            check()
            try:
                socket.if_nametoindex(self._interface.name)
                self._connect()
                return
            except OSError as error:
                raise UsageError(
                    f"{self._interface.name}: the interface was removed, and its program with it"
                ) from error
            except UsageError:
                if find_record(self._interface) is None or time.monotonic() > end:
                    raise
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def read(self, seconds: float | None) -> list[dict[str, Any]]:
        """Read the flows that have come.

        Args:
            seconds: how long to wait for some; None for no limit.

        Returns:
            The flows, each as n3icd's line of JSON; empty if none came in time.

        Raises:
            UsageError: n3icd ended without a successor, or sent something that is not a flow.
        """
        messages, self._waiting = self._waiting or self._receive(seconds), []
        self.lost += sum(int(message["lost"]) for message in messages if "lost" in message)
        return [message for message in messages if "lost" not in message]

    def _receive(self, seconds: float | None) -> list[dict[str, Any]]:
        """Read the JSON objects of whole lines."""
        self._socket.settimeout(seconds)
        try:
            received = self._socket.recv(1 << 16)
        except (TimeoutError, BlockingIOError):
            return []
        if not received:
            if not self._is_greeted:
                raise ConnectionError
            self._connect_again()
            return []
        if len(self._partial) > _LINE:
            raise UsageError(f"{self._path}: n3icd sent something that is not a flow")
        *whole, self._partial = (self._partial + received).split(b"\n")
        try:
            return [dict(json.loads(line)) for line in whole]
        except ValueError as error:
            raise UsageError(f"{self._path}: not a line of JSON: {error}") from error


def flow_records(
    flows: Sequence[Mapping[str, Any]], spec: MeterSpec, kind: np.dtype[np.void], first: int = 0
) -> NDArray[np.void]:
    """Convert flows to records, with times in the meter's ticks since 1970.

    Args:
        flows: flows as :meth:`FlowReader.read` returns them.
        spec: meter of the program.
        kind: dtype of the records, with the members of
            :func:`n3ic.meter.compiled.record_type`; others stay 0.
        first: number of the first flow.

    Returns:
        The records, of shape (flows,).
    """
    records = np.zeros(len(flows), kind)
    for number, (record, flow) in enumerate(zip(records, flows, strict=True), first):
        for name in ("source", "destination"):
            address = ip_address(flow[name]).packed
            record["address_bytes"] = len(address)
            record[name][: len(address)] = list(address)
        for name in ("source_port", "destination_port", "protocol", "packets"):
            record[name] = flow[name]
        for name in ("first", "last"):
            record[name] = round(flow[name] * 1e9) // spec.tick_ns
        record["why"], record["number"] = ENDS.index(flow["why"]), number
        record["features"] = [flow["features"][name] for name in spec.feature_names]
    return records
