# SPDX-License-Identifier: Apache-2.0
"""Builds the micro-C of an export for this host and runs it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.model.bits import Bits, Words, unpack, word_count
from n3ic.model.classifier import Classifier
from n3ic.model.network import SHUNT, BinaryModel, Inference, classes_of
from n3ic.util.process import run_tool

FLAGS = ("-std=gnu90", "-O2", "-pthread")  # nfcc accepts only C90
_SHUNT = 0xFFFFFFFF  # N3IC_SHUNT in the micro-C
_BUILD_SECONDS = 300
_RUN_SECONDS = 1800


def compiler() -> str:
    """Find a C compiler and return its path.

    Raises:
        MissingDependencyError: no C compiler is installed.
    """
    for name in ("gcc", "cc", "clang"):
        path = shutil.which(name)
        if path:
            return path
    raise MissingDependencyError(
        "running the micro-C on this host needs a C compiler: install gcc or clang"
    )


def version(path: str) -> str:
    """Return the first line of the compiler's version text."""
    done = subprocess.run(
        [path, "--version"], capture_output=True, text=True, timeout=30, check=False
    )
    return (done.stdout.splitlines() or [path])[0]


def hidden_words(model: BinaryModel) -> int:
    """Return the number of words that the packed hidden layers take in an answer."""
    return sum(word_count(layer.n_outputs) for layer in model.hidden)


def run_inputs(
    directory: Path,
    model: Classifier,
    what: str,
    rows: Words,
    hidden: int,
    explain: Callable[[int], str],
) -> NDArray[np.uint32]:
    """Compile an export and run it on inputs; each row of 32-bit words is one request.

    Args:
        directory: the export directory, which is only read.
        model: the model, which gives the size of the answers.
        what: content of the rows: ``bits`` or ``features``.
        rows: uint32 array of shape ``(rows, words per request)``.
        hidden: words of intermediate results (packed hidden layers or indices) in an answer.
        explain: describes a word of the weights by its number.

    Returns:
        uint32 array of shape ``(rows, 2 + classes + input words + hidden words)``: class or shunt,
            margin, scores, packed input and intermediate results, with at least one hidden word.

    Raises:
        VerifyError: the micro-C does not compile or run, or holds other weights.
    """
    width = 2 + len(model.classes) + model.input.n_words + max(1, hidden)
    directory = directory.resolve()
    with tempfile.TemporaryDirectory(prefix="n3ic-nfp-") as folder:
        program = Path(folder) / "n3ic_host"
        source = directory / "host" / "n3ic_host.c"
        built = _call([compiler(), *FLAGS, "-o", str(program), str(source)], b"", _BUILD_SECONDS)
        if built.returncode:
            raise VerifyError(f"the micro-C does not compile: {_last(built.stderr)}")
        ran = _call(
            [str(program), what, str(directory / "weights.bin")],
            np.ascontiguousarray(rows, dtype=np.uint32).tobytes(),
            _RUN_SECONDS,
        )
    if ran.returncode:
        raise VerifyError(_reason(explain, _last(ran.stderr)))
    answers = np.frombuffer(ran.stdout, dtype=np.uint32)
    if answers.size != len(rows) * width:
        raise VerifyError(f"{answers.size} words came back for {len(rows)} rows of {width}")
    return answers.reshape(len(rows), width)


def trace(model: BinaryModel, answers: NDArray[np.uint32]) -> Inference:
    """Convert a program's answers to a trace; the answer for a shunted row holds no class."""
    at = 2 + len(model.classes) + model.input.n_words
    hidden = []
    for layer in model.hidden:
        end = at + word_count(layer.n_outputs)
        hidden.append(unpack(answers[:, at:end], layer.n_outputs))
        at = end
    return answered(model, answers, tuple(hidden))


def answered(
    model: Classifier, answers: NDArray[np.uint32], hidden: tuple[Bits, ...] = ()
) -> Inference:
    """Read scores, classes, verdicts and margins from a program's answers."""
    scores = answers[:, 2 : 2 + len(model.classes)].view(np.int32).copy()
    shunted = answers[:, 0] == _SHUNT
    verdicts = np.where(shunted, SHUNT, answers[:, 0].astype(np.int64))
    return Inference(
        scores=scores,
        # The answer for a shunted row has no class, but the reference has: take it from the scores.
        classes=np.where(shunted, classes_of(scores), verdicts),
        margins=answers[:, 1].view(np.int32).copy(),
        hidden=hidden,
        verdicts=verdicts,
    )


def _reason(explain: Callable[[int], str], text: str) -> str:
    word = re.search(r"differs from n3ic_weights.h at word (\d+)", text)
    where = f" ({explain(int(word.group(1)))})" if word else ""
    return f"the micro-C does not run: {text}{where}"


def _last(octets: bytes) -> str:
    lines = [line for line in octets.decode(errors="replace").splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line] or lines[-1:]
    return wrong[0][:400] if wrong else "no reason given"


def _call(command: list[str], stdin: bytes, seconds: int) -> subprocess.CompletedProcess[bytes]:
    try:
        return run_tool(command, seconds=seconds, stdin=stdin)
    except subprocess.TimeoutExpired as error:
        raise VerifyError(f"{Path(command[0]).name} took more than {seconds} s") from error
    except OSError as error:
        raise VerifyError(f"{Path(command[0]).name} did not start: {error}") from error
