# SPDX-License-Identifier: Apache-2.0
"""A compiler that reuses what it has compiled before from the same text with the same options.

    python compiled_once.py CACHE COMPILER [arguments of the compiler]

The tests build the same kernels and simulators hundreds of times, in folders with different names.
ccache treats these folders as different, and does not handle commands that both compile and link.
Commands that this script does not understand, and those whose output contains paths, are passed to
the compiler. Debug information contains paths unless PLACE keeps the folder out of it; the files
that were read then also count.
"""

from __future__ import annotations

import hashlib
import os
import select
import sys

# To import subprocess, pathlib and re would take longer than all else that is done here.
SOURCES = (".c", ".cc", ".cpp", ".cxx")
OBJECTS = (".o", ".a", ".so")
# Options that put paths into the output, write other files, or read files unknown to this script.
NOT_UNDERSTOOD = ("-g", "-E", "-M", "-S", "-l", "-L", "-x", "-fprofile", "--coverage", "-fsanitize",
                  "-save-temps", "-ftest", "-B", "@")  # fmt: skip
PLACE = "-fdebug-compilation-dir=."
LINKED = ("-lm", "-lpthread")
UNDERSTOOD = ("-g0", "-MMD", "-MP", *LINKED)


def run(command: list[str]) -> tuple[int, bytes, bytes]:
    """Exit status, output and messages of a command."""
    pipes = [os.pipe(), os.pipe()]
    to = [(os.POSIX_SPAWN_DUP2, pipe[1], i) for i, pipe in enumerate(pipes, 1)]
    try:
        process = os.posix_spawn(command[0], command, os.environ, file_actions=to)
    finally:
        for _, end in pipes:
            os.close(end)
    out = {end: b"" for end, _ in pipes}
    unread = list(out)
    while unread:
        for end in select.select(unread, [], [])[0]:
            piece = os.read(end, 1 << 20)
            out[end] += piece
            if not piece:
                unread.remove(end)
                os.close(end)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return status, out[pipes[0][0]], out[pipes[1][0]]


def read(path: str) -> bytes:
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def shown_files(text: bytes) -> list[str]:
    """Files that lines such as ``# 1 "a.h"`` of a preprocessed text name."""
    lines = (line.split(b'"') for line in text.splitlines() if line.startswith(b"# "))
    named = {parts[1] for parts in lines if len(parts) > 2 and parts[0][2:].strip().isdigit()}
    return sorted(os.fsdecode(name) for name in named if not name.startswith(b"<"))


def key(compiler: str, words: list[str]) -> tuple[str, str] | None:
    """A digest of everything that decides the output, and the output; None if that is unknown."""
    words, sources, rest, inputs = list(words), [], [], []
    lines = "-g" in words and PLACE in words
    understood = (*UNDERSTOOD, "-g") if lines else UNDERSTOOD
    if any(w.startswith(NOT_UNDERSTOOD) and w not in understood for w in words):
        return None
    if words.count("-o") != 1 or words[-1] == "-o":
        return None
    at = words.index("-o")
    out = words[at + 1]
    for word in words[:at] + words[at + 2 :]:
        if word.endswith(OBJECTS):
            inputs.append(hashlib.sha256(read(word)).hexdigest())
        elif not word.startswith("-") and word.endswith(SOURCES):
            sources.append(word)
        else:
            rest.append(word)
    if not sources:
        return None
    # clang would warn that it does not link.
    options = [w for w in rest if w not in ("-c", "-MMD", "-MP", "-shared", *LINKED)]
    shown = ["-E"] if lines else ["-E", "-P"]
    status, text, errors = run([compiler, *options, *shown, *sources])
    if status or errors:
        return None
    info = os.stat(compiler)
    tail = [w for w in rest if not w.startswith(("-I", "-D"))]  # the text has what they do
    parts = [compiler, info.st_size, info.st_mtime_ns, len(sources), *tail, "", *inputs]
    digest = hashlib.sha256("\0".join(map(str, parts)).encode() + b"\0" + text)
    for name in shown_files(text) if lines else ():
        digest.update(read(name))
    return digest.hexdigest(), out


def copy(source: str, to: str) -> None:
    """Copy a file and its mode."""
    with open(to, "wb") as file:
        file.write(read(source))
    os.chmod(to, os.stat(source).st_mode)


def main(cache: str, compiler: str, words: list[str]) -> int:
    """Compile, or copy what was compiled before; return the compiler's exit code."""
    try:
        request = key(compiler, words)
    except OSError:
        request = None
    if request is None:
        os.execv(compiler, [compiler, *words])  # noqa: S606
    digest, out = request
    entry = os.path.join(cache, digest)
    if os.path.exists(entry):
        if os.path.lexists(out):
            os.unlink(out)
        copy(entry, out)
        return 0
    status, shown, errors = run([compiler, *words])
    sys.stdout.buffer.write(shown)
    sys.stderr.buffer.write(errors)
    if not (status or errors or shown):
        os.makedirs(cache, exist_ok=True)
        temporary = f"{entry}.{os.getpid()}"
        copy(out, temporary)
        os.replace(temporary, entry)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
