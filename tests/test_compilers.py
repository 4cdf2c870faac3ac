# SPDX-License-Identifier: Apache-2.0
"""The C that n3ic writes, by the oldest and newest compilers here: no warning.

Nothing that a user builds treats warnings as errors, for every compiler has others. These tests do.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.xdp.clang import FLAGS as BPF
from n3ic.families.spn.random_models import random_spn
from n3ic.families.tables import kernel as tables_kernel
from n3ic.families.tables.random_models import random_tables
from n3ic.kernel import build
from n3ic.meter.standard import standard_spec
from n3ic.model.classifier import Classifier
from n3ic.model.random_models import random_model
from n3ic.systems.card.export import export_card
from n3ic.systems.stream.flows import gather
from n3ic.targets.base import exporter
from tests.support import software_cards as cards
from tests.support.kernel_models import small_model
from tests.support.metered_models import metered_network
from tests.support.random_graphs import graph_family, graph_model

WEIGHTS = b"/* --- weights, compiled in ---"
LEVELS = ("-O0", "-O2", "-O3", "-Os")
STRICT = ("-Wall", "-Wextra")
C11 = ("-std=c11", "-pthread", "-Wpedantic")  # the Makefiles of host exports and cards
C90 = ("-std=gnu90", "-pthread", "-Wvla", "-Wdeclaration-after-statement")  # what nfcc accepts
DAEMON = ("-std=c11", "-D_GNU_SOURCE", "-DNETWORK_KEEP_ROWS", "-isystem", "../meter")


def compilers() -> list[str]:
    """The oldest and the newest gcc and clang on the PATH."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    names = [path.name for folder in folders if folder.is_dir() for path in folder.iterdir()]
    ends = []
    for family in ("gcc", "clang"):
        numbers = {int(m[1]) for n in names if (m := re.fullmatch(rf"{family}-(\d+)", n))}
        ends += [f"{family}-{n}" for n in sorted(numbers) if n in (min(numbers), max(numbers))]
    return ends or [name for name in ("gcc", "clang") if shutil.which(name)]


def builds() -> list[tuple[str, str]]:
    """The newest gcc at every level, the newest clang at -O3, and older ones as Makefiles do.

    What gcc finds depends on the level. Clang warns as it parses, the same at each, but of loops
    that it was asked to vectorise and could not.
    """
    every = compilers()
    levels = {"gcc": LEVELS, "clang": ("-O3",)}
    newest = {name.partition("-")[0]: name for name in every}  # the last of each family
    return [
        (name, level)
        for name in every
        for level in (levels[name.partition("-")[0]] if name in newest.values() else ("-O2",))
    ]


def further(build: tuple[str, str]) -> bool:
    """Whether a release alone tries a build: all but the newest compilers at -O3."""
    newest = {name.partition("-")[0]: name for name in compilers()}
    return build[1] != "-O3" or build[0] not in newest.values()


def networks() -> Iterator[Classifier]:
    """Each family: of several layers and of one, wide, with absent connections, with a meter."""
    rng = np.random.default_rng(1)
    yield small_model()
    yield random_model((1100, 50, 20, 17), rng, density=0.5)
    yield random_model((9, 2), rng)
    yield metered_network(standard_spec())
    yield random_tables(rng, classes=3).with_shunt(2)
    yield random_tables(rng, features=1, cuts=1, tables=1, inputs=(1, 1), widths=(1, 1))
    yield random_spn(rng)
    yield graph_model(1, operations=9, depth=4, classes=2)
    yield graph_model(3, operations=200)


def write_all(folder: Path) -> None:
    """Write host and NFP exports of each network, and cards of one network and of joined ones."""
    with graph_family():
        for number, model in enumerate(networks()):
            for target in ("host", "nfp"):
                if model.family not in exporter(target).families:
                    continue
                chosen = exporter(target).for_family(model.family)
                out = folder / f"{number}-{target}"
                out.mkdir()
                chosen.write(model, chosen.parse_options({}), out)
    models = folder / "models"
    models.mkdir()
    cards.models(models)
    random_model((20, 8, 2), np.random.default_rng(3)).save(models / "a.n3ic")
    cards.differing_models(models)
    documents = {
        "one": cards.alone("host", "a"),
        "policy": cards.alone("host", "a", policy='{ action = "drop" }', carrier="vlan"),
        "votes": cards.text("host", carrier="udp-port"),
        "joins": cards.joining("host"),
    }
    for name, document in documents.items():
        export_card(cards.plan(models, document), folder / f"card-{name}", verify=False)


Unit = tuple[Path, tuple[str, ...]]


def units(folder: Path) -> Iterator[Unit]:
    """Each C file that a Makefile or n3ic itself compiles, with its flags."""
    for directory in sorted(folder.iterdir()):
        if (directory / "host").is_dir():
            for source in sorted((directory / "host").glob("*.c")):
                islands = (0, 1) if directory.name.startswith("card") else (0,)
                for island in islands:
                    yield source, (*C90, f"-DN3IC_ISLAND={island}")
        else:
            yield from ((source, C11) for source in sorted(directory.glob("*.c")))
    for source in (build.SOURCE, build.STREAM[0], tables_kernel.SOURCE, gather.SOURCE):
        yield source, (*C11, f"-I{build.FOLDER}")


def content(unit: Unit) -> tuple[str, str]:
    """Digests of a file with all that it includes: of every byte, and without compiled-in weights.

    What the weights are is no matter to code that comes before them, but where it is optimised
    most: the compiler may count with them.
    """
    source, flags = unit
    words = ["gcc" if shutil.which("gcc") else "clang", *flags, "-MM", "-MT", "x", source]
    done = subprocess.run(words, capture_output=True, check=True, text=True, timeout=60)
    files = done.stdout.removeprefix("x:").replace("\\\n", " ").split()
    texts = [Path(file).read_bytes() for file in files]
    codes = [text.partition(WEIGHTS)[0] for text in texts]
    whole, code = (hashlib.sha256(b"\0".join(part)).hexdigest() for part in (texts, codes))
    return whole, code


@pytest.fixture(name="different", scope="module")
def different_fixture(
    made_once: Callable[[str, Callable[[Path], None]], Path],
) -> tuple[list[Unit], list[Unit]]:
    """Units that differ in any byte, and in any byte of code: the kernel is that of many exports.

    Where files are found, which ``-I`` says, makes none of them another one.
    """
    whole: dict[tuple[str, ...], Unit] = {}
    codes: dict[tuple[str, ...], Unit] = {}
    for unit in units(made_once("c", write_all)):
        flags = tuple(flag for flag in unit[1] if not flag.startswith("-I"))
        every, code = content(unit)
        whole[every, *flags] = codes[code, *flags] = unit
    return list(whole.values()), list(codes.values())


def test_nothing_that_a_user_builds_takes_warnings_for_errors(repository: Path) -> None:
    """A compiler that is newer than this release warns of more."""
    folders = ("n3ic", "exporters", "families", "systems", "datasets", "docs", "notebooks")
    strict = [
        str(path.relative_to(repository))
        for folder in folders
        for path in (repository / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc" and b"-Werror" in path.read_bytes()
    ]
    assert strict == []


def warnings_of(compiler: str, sources: Iterable[Unit], *flags: str) -> list[str]:
    """What a compiler finds in each unit."""
    messages = []
    for source, own in sources:
        command = [compiler, *flags, *own, "-Werror", "-c", source.name, "-o", os.devnull]
        done = subprocess.run(
            command, cwd=source.parent, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            messages.append(f"{source}: {done.stderr[:2000]}")
    return messages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "level"),
    [pytest.param(*b, marks=pytest.mark.exhaustive if further(b) else ()) for b in builds()],
)
def test_no_compiler_warns(
    different: tuple[list[Unit], list[Unit]], compiler: str, level: str
) -> None:
    whole, codes = different
    assert len(whole) > 30 and len(codes) > 25
    most = level == "-O3" and not compiler.startswith("clang")
    assert warnings_of(compiler, whole if most else codes, level, *STRICT) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(c, marks=pytest.mark.exhaustive if further((c, "-O3")) else ())
        for c in compilers()
    ],
)
def test_no_compiler_warns_of_the_programs_of_xdp(compiler: str, tmp_path: Path) -> None:
    if not Path("/usr/include/bpf/libbpf.h").exists() or not shutil.which("clang"):
        pytest.skip("needs clang and libbpf-dev")
    xdp, model = exporter("xdp"), metered_network(standard_spec())
    xdp.write(model, xdp.parse_options({}), tmp_path)
    sources = sorted(tmp_path.glob("*/*.c"))
    loaded = [s for s in sources if s.name in ("answer.c", "meter.c", "idle.bpf.c")]
    assert len(loaded) == 3 and len(sources) > 15
    host = [(source, DAEMON) for source in sources if source not in loaded]
    assert warnings_of(compiler, host, "-O2", *STRICT) == []
    if compiler.startswith("clang"):
        include = f"-I/usr/include/{platform.machine()}-linux-gnu"
        flags = (*BPF, "-ffreestanding", include, "-I../meter")
        assert warnings_of(compiler, [(s, flags) for s in loaded], "-Wall") == []
