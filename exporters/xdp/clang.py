# SPDX-License-Identifier: Apache-2.0
"""Compiles restricted C to BPF object files."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.util.process import run_tool

# Hide the build folder, so that the same sources give the same object in any folder.
PLACE = "-fdebug-compilation-dir=."
FLAGS = ("-O2", "-g", "-target", "bpf", "-mcpu=v3", PLACE)
TIMEOUT_S = 300


def compile_bpf(files: Mapping[str, str], program: str, options: Sequence[str] = ()) -> bytes:
    """Compile a program for the kernel.

    Args:
        files: sources by file name.
        program: name of the file to compile; it includes the others.
        options: further compiler options.

    Returns:
        Bytes of the object file.

    Raises:
        MissingDependencyError: clang or libbpf's headers are not installed.
        VerifyError: the C does not compile; the error holds the compiler's output.
    """
    clang = shutil.which(os.environ.get("N3IC_CLANG", "clang"))
    if clang is None:
        raise MissingDependencyError(
            "compiling for XDP needs clang 14 or newer: apt-get install clang libbpf-dev"
        )
    with tempfile.TemporaryDirectory(prefix="n3ic-xdp-") as name:
        scratch = Path(name)
        for file, text in files.items():
            (scratch / file).write_text(text, encoding="utf-8")
        # linux/ headers include asm/, which Debian keeps in a folder per architecture.
        include = f"-I/usr/include/{platform.machine()}-linux-gnu"
        command = [clang, *FLAGS, include, *options, "-c", program, "-o", "program.o"]
        try:
            done = run_tool(command, seconds=TIMEOUT_S, cwd=scratch)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VerifyError(f"clang: {error}") from error
        if done.returncode:
            errors = done.stderr.decode(errors="replace").strip()
            if "bpf_helpers.h" in errors and "not found" in errors:
                raise MissingDependencyError(
                    "compiling for XDP needs libbpf's headers: apt-get install libbpf-dev"
                )
            raise VerifyError(f"{program} does not compile: {errors[:2000]}")
        return (scratch / "program.o").read_bytes()
