# SPDX-License-Identifier: Apache-2.0
"""Write the exports of eleven models for every target, or compare two such folders.

Shows that a change of the code changes no artefact: run ``write`` with the code before and after
the change, then ``compare``. Wording does not count: READMEs, reports, comments, and lines that
name the version or a licence are left out.

    python scripts/same_exports.py write before
    python scripts/same_exports.py write after
    python scripts/same_exports.py compare before after
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from n3ic.families.spn.random_models import random_spn
from n3ic.families.tables.random_models import random_tables
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model

TARGETS = ("host", "dpdk", "nfp", "netfpga", "p4", "p4-netfpga", "xdp", "onnx", "qonnx")
CARDS = ("host", "netfpga", "p4", "xdp")
WORDING = re.compile(r"README.*|report\.(md|json)|verification\.json|manifest\.json|plan\.json")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*|--[^\n]*", re.DOTALL | re.MULTILINE)


def models() -> Iterator[tuple[str, Classifier]]:
    """Models of every family: the paper's shapes, masks, features, classes, shunting."""

    def rng(seed: int) -> np.random.Generator:
        return np.random.default_rng(seed)

    spec = InputSpec(
        (Field.binary("bytes", 20), Field("rate", "thermometer", 3, 1000, cuts=(3, 70, 900)))
    )
    paper = random_model((256, 32, 16, 2), rng(0))
    yield "paper", paper
    yield "tomography", random_model((152, 32, 16, 2), rng(1))
    yield "wide", random_model((64, 64, 2), rng(2))
    yield "masked", random_model((48, 20, 5), rng(3), density=0.5)
    yield "features", replace(random_model((23, 8, 2), rng(4)), input=spec)
    yield "classes", random_model((40, 12, 10), rng(5))
    yield "small", random_model((8, 4, 2), rng(6))
    yield "shunting", random_model((32, 16, 3), rng(7)).with_shunt(2)
    yield "spn", random_spn(rng(8))
    yield "spn-classes", random_spn(rng(9), features=4, classes=3)
    yield "tables", random_tables(rng(10))


def write(out: Path) -> None:
    """Export every model for every target, and a card of two tenants, below ``out``."""
    out.mkdir(parents=True)
    for name, model in models():
        model.save(out / f"{name}.n3ic")
    for name, _ in models():
        for target in TARGETS:
            _call(out, "export", "--target", target, "--model", f"{name}.n3ic", "--no-verify",
                  "--out", f"{name}/{target}", "--force")  # fmt: skip
        _call(out, "export", "--target", "netfpga", "--model", f"{name}.n3ic", "--no-verify",
              "--out", f"{name}/netfpga-unrolled", "--force", "--style", "unrolled")  # fmt: skip
    for target in CARDS:
        tenants = [f"{n}={n}.n3ic" for n in ("paper", "tomography")]
        _call(out, "card", "init", *tenants, "--target", target, "--out", f"{target}.toml")
        _call(out, "card", "export", f"{target}.toml", "--no-verify", "--out", f"card/{target}")


def _call(folder: Path, *words: str) -> None:
    """Run one command; a refusal is kept as a file, so that refusals are compared too."""
    process = subprocess.run(
        [sys.executable, "-m", "n3ic", *words], cwd=folder, capture_output=True, text=True
    )
    if process.returncode:
        path = folder / (words[words.index("--out") + 1].replace("/", "-") + ".refused")
        path.write_text(str(process.returncode))
        print(f"{' '.join(words)}: {process.stderr.strip()[-200:]}")


def compare(before: Path, after: Path) -> int:
    """Print the artefacts that differ, and return their number."""
    names = {
        p.relative_to(folder).as_posix()
        for folder in (before, after)
        for p in folder.rglob("*")
        if p.is_file()
    }
    different = [name for name in sorted(names) if not _same(before / name, after / name)]
    for name in different:
        print(name)
    print(f"{len(names)} files, {len(different)} differ")
    return len(different)


def _same(one: Path, other: Path) -> bool:
    if not (one.is_file() and other.is_file()):
        return False
    if WORDING.fullmatch(one.name):
        return True
    first, second = one.read_bytes(), other.read_bytes()
    return first == second or _code(first) == _code(second)


def _code(data: bytes) -> str | bytes:
    """A text without its comments and empty lines; binary data unchanged."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    return "\n".join(line.rstrip() for line in COMMENT.sub("", text).splitlines() if line.strip())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("write").add_argument("out", type=Path)
    both = verbs.add_parser("compare")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "write":
        write(arguments.out.resolve())
    else:
        sys.exit(bool(compare(arguments.before, arguments.after)))
