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
import re
import subprocess
import sys
from pathlib import Path

SOURCES = (".c", ".cc", ".cpp", ".cxx")
OBJECTS = (".o", ".a", ".so")
# Options that put paths into the output, write other files, or read files unknown to this script.
NOT_UNDERSTOOD = ("-g", "-E", "-M", "-S", "-l", "-L", "-x", "-fprofile", "--coverage", "-fsanitize",
                  "-save-temps", "-ftest", "-B", "@")  # fmt: skip
PLACE = "-fdebug-compilation-dir=."
LINKED = ("-lm", "-lpthread")
UNDERSTOOD = ("-g0", "-MMD", "-MP", *LINKED)


def key(compiler: str, words: list[str]) -> tuple[str, Path] | None:
    """A digest of everything that decides the output, and the output; None if that is unknown."""
    words, sources, rest, inputs = list(words), [], [], []
    lines = "-g" in words and PLACE in words
    understood = (*UNDERSTOOD, "-g") if lines else UNDERSTOOD
    if any(w.startswith(NOT_UNDERSTOOD) and w not in understood for w in words):
        return None
    if words.count("-o") != 1 or words[-1] == "-o":
        return None
    at = words.index("-o")
    out = Path(words[at + 1])
    for word in words[:at] + words[at + 2 :]:
        if word.endswith(OBJECTS):
            inputs.append(hashlib.sha256(Path(word).read_bytes()).hexdigest())
        elif not word.startswith("-") and word.endswith(SOURCES):
            sources.append(word)
        else:
            rest.append(word)
    if not sources:
        return None
    # clang would warn that it does not link.
    options = [w for w in rest if w not in ("-c", "-MMD", "-MP", "-shared", *LINKED)]
    shown = ["-E"] if lines else ["-E", "-P"]
    text = subprocess.run([compiler, *options, *shown, *sources], capture_output=True)
    if text.returncode or text.stderr:
        return None
    info = Path(compiler).stat()
    tail = [w for w in rest if not w.startswith(("-I", "-D"))]  # the text has what they do
    parts = [compiler, info.st_size, info.st_mtime_ns, len(sources), *tail, "", *inputs]
    digest = hashlib.sha256("\0".join(map(str, parts)).encode() + b"\0" + text.stdout)
    for name in sorted(set(re.findall(rb'^# \d+ "([^"<]+)"', text.stdout, re.MULTILINE))):
        digest.update(Path(os.fsdecode(name)).read_bytes())
    return digest.hexdigest(), out


def copy(source: Path, to: Path) -> None:
    """Copy a file and its mode; importing shutil would take as long as everything else here."""
    to.write_bytes(source.read_bytes())
    to.chmod(source.stat().st_mode)


def main(cache: Path, compiler: str, words: list[str]) -> int:
    """Compile, or copy what was compiled before; return the compiler's exit code."""
    try:
        request = key(compiler, words)
    except OSError:
        request = None
    if request is None:
        os.execv(compiler, [compiler, *words])  # noqa: S606
    digest, out = request
    entry = cache / digest
    if entry.exists():
        out.unlink(missing_ok=True)
        copy(entry, out)
        return 0
    compilation = subprocess.run([compiler, *words], capture_output=True)
    sys.stdout.buffer.write(compilation.stdout)
    sys.stderr.buffer.write(compilation.stderr)
    if not (compilation.returncode or compilation.stderr or compilation.stdout):
        cache.mkdir(parents=True, exist_ok=True)
        temporary = entry.with_suffix(f".{os.getpid()}")
        copy(out, temporary)
        temporary.replace(entry)
    return compilation.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
