# SPDX-License-Identifier: Apache-2.0
"""Verifies the front end of an export against its model: request frames in, result frames out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.frontend import packets
from n3ic.exporters.netfpga.frontend.bench import MAC, PORT, FrontBench
from n3ic.exporters.netfpga.frontend.messages import (
    MessageError,
    bit_rows,
    feature_rows,
    read_message,
    request,
    results_body,
)
from n3ic.exporters.netfpga.frontend.parameters import frontend_parameters
from n3ic.exporters.netfpga.tools.simulate import version
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import UINT32_MAX
from n3ic.options import Options

HOST = packets.SocketAddress(bytes.fromhex("024e33000002"), bytes((10, 23, 23, 1)), 40_000)
CARD = packets.SocketAddress(MAC, bytes((10, 23, 23, 2)), PORT)


def check_front(directory: Path, model: Classifier, options: Options, words: Words) -> str:
    """Send inputs through the whole front end and compare each answer, byte for byte.

    Args:
        directory: an export directory with a front end, which is only read.
        model: the model that it should compute.
        options: options of the export.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``; if rows hold features, the
            same number of random rows is sent instead.

    Returns:
        A description of what was checked.

    Raises:
        MissingDependencyError: Verilator is not installed.
        VerifyError: an answer is missing or differs from the model's.
    """
    form = frontend_parameters(model, options)
    rng = np.random.default_rng(len(words))
    if options["input-stage"] == "features":
        columns = _feature_values(model, len(words), rng)
        words = model.encode(columns)
        rows = feature_rows(np.stack([columns[f] for f in model.input.features], axis=1))
    else:
        rows = bit_rows(words, model.input.n_bits)
    most = min(form.max_rows, (form.mtu - 44) // form.row)
    batches, at = [], 0
    while at < len(words):
        count = int(rng.integers(1, most + 1))
        batches.append((words[at : at + count], rows[at : at + count]))
        at += count
    digest = int(model.digest[:8], 16)
    frames = [
        packets.udp(HOST, CARD, request(i, digest, batch).to_bytes())
        for i, (_, batch) in enumerate(batches)
    ]
    with FrontBench(directory) as bench:
        sent_frames = bench.run(frames).left
    if len(sent_frames) != len(frames):
        raise VerifyError(f"the front end answered {len(sent_frames)} of {len(frames)} datagrams")
    full = options["answers"] == "full"
    for i, (frame, (inputs, _)) in enumerate(zip(sent_frames, batches, strict=True)):
        try:
            answer = read_message(packets.read_ipv4(frame.data).payload)
        except (ValueError, MessageError) as error:
            raise VerifyError(f"the front end: datagram {i}: {error}") from error
        expected = results_body(model, inputs, full=full)
        if (answer.number, answer.model, answer.body) != (i, digest, expected):
            wrong = next(
                (k for k in range(len(inputs)) if _result(answer.body, k, form.result)
                 != _result(expected, k, form.result)), 0,
            )  # fmt: skip
            raise VerifyError(
                f"the front end: datagram {i}, row {wrong} of {len(inputs)}: answer "
                f"{_result(answer.body, wrong, form.result).hex(' ')}, expected "
                f"{_result(expected, wrong, form.result).hex(' ')}"
            )
    return (
        f"front end of {8 * form.beat} bits: {len(frames)} datagrams of {len(words)} rows "
        f"({version('verilator')})"
    )


def _feature_values(
    model: Classifier, count: int, rng: np.random.Generator
) -> dict[str, NDArray[np.int64]]:
    """Features at and next to the cuts of the input stage, and random ones."""
    columns = {}
    for name in model.input.features:
        cuts = [c for f in model.input.fields if f.feature == name for c in f.cuts]
        clamps = [f.clamp for f in model.input.fields if f.feature == name]
        near = np.array([0, UINT32_MAX, *clamps, *(c + d for c in cuts for d in (-1, 0, 1))])
        values = np.where(
            rng.random(count) < 0.5, rng.choice(near, count), rng.integers(0, 1 << 32, count)
        )
        columns[name] = np.clip(values, 0, UINT32_MAX)
    return columns


def _result(body: bytes, index: int, size: int) -> bytes:
    return body[index * size : (index + 1) * size]
