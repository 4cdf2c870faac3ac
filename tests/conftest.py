# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests: real data where it is, and an environment that is the tests' own."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import functools
import gc
import os
import shutil
import signal
import subprocess
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import hypothesis
import pytest
import typer.main

from n3ic.datasets.ns3_tomography import report as tomography_report
from n3ic.errors import MissingDependencyError
from n3ic.exporters.host import compilation, runner
from n3ic.exporters.nfp import runner as nfp_runner
from n3ic.exporters.xdp import clang
from n3ic.exporters.xdp.network.host import HostNetwork
from n3ic.kernel import build
from n3ic.kernel.library import KernelLibrary
from n3ic.meter import capture, compiled
from n3ic.runs.pictures import writing
from n3ic.systems.card.host.library import CardLibrary
from n3ic.training.input_bits.boosted import boosted_trees
from n3ic.util import pictures
from tests.support.first_cases import mark_further_cases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# How long an example takes, or is made, says how busy the machine is, not what is wrong.
# The same commit sees the same examples; `--hypothesis-profile=search` draws new ones each time.
for profile, same in ("n3ic", True), ("search", False):
    hypothesis.settings.register_profile(
        profile,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        derandomize=same,
    )
hypothesis.settings.load_profile("n3ic")

# What is imported stays: looking for garbage meanwhile finds none. See pytest_collection_finish.
gc.disable()

# A shell's background jobs ignore SIGINT, nohup SIGHUP, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Every other process collects from the end: of a fresh clone, each compiles half of all."""
    report = yield
    odd = os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579"
    if odd and isinstance(collector, pytest.Directory):
        report.result.reverse()
    return report


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A long text has no place in a test's name, which every process sends to the first one."""
    if isinstance(val, str | bytes) and len(val) > _LONGEST_ID:
        digest = zlib.crc32(val if isinstance(val, bytes) else val.encode(errors="replace"))
        return f"{argname}-of-{len(val)}-{digest:08x}"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All processes have the tests in one order, files of long ones first."""
    mark_further_cases(items)
    items.sort(key=lambda item: (item.path.name not in LONG, item.path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Fixtures read captures, too."""
    with skipped_without_libpcap():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Most tests that read captures do so far below what they are about."""
    with skipped_without_libpcap():
        return (yield)


@contextlib.contextmanager
def skipped_without_libpcap() -> Iterator[None]:
    """Turn a failure for the missing library into a skip with its message."""
    try:
        yield
    except Exception as error:
        try:
            capture.libpcap()
        except MissingDependencyError as missing:
            if str(missing) in str(error):
                pytest.skip(str(missing))
        raise


def pytest_unconfigure() -> None:
    """Pytest makes five passes for garbage; it is enough that one passes over all objects."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """Collecting garbage passes over what was imported, all libraries of all tests, and is rarer.

    Parse trees and plans are many small objects without cycles, which reference counts free.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
# What builds C that most tests only use.
LOADED = ((compiled, "_built"), (HostNetwork, "build"), (CardLibrary, "__init__"))
_LONGEST_ID = 200  # characters
# Files whose long tests, begun last, would keep one process busy alone.
LONG = ("test_docs.py", "test_notebooks.py", "test_packaging.py", "test_site.py")
# A whole PNG file.
ONE_PIXEL = base64.b64decode(
    b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """No test cuts the power, so none needs its files on the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@contextlib.contextmanager
def _pictures_of_runs(save: Callable[[Figure, Path, str], None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "save", save)
        patch.setattr(tomography_report, "save", save)
        yield


@pytest.fixture(scope="session", autouse=True)
def undrawn_pictures_of_runs() -> Iterator[None]:
    """The figures of a run are made, and a picture of one pixel stands for each.

    Drawing them takes half of a short training's time; tests/runs/test_pictures.py looks at it.
    """

    def save(figure: Figure, directory: Path, name: str) -> None:
        (directory / f"{name}.png").write_bytes(ONE_PIXEL)

    with _pictures_of_runs(save):
        yield


@pytest.fixture(scope="module")
def small_pictures_of_runs() -> Iterator[None]:
    """Pictures of runs are drawn whole, but small and as they lie."""

    def save(figure: Figure, directory: Path, name: str) -> None:
        figure.set_layout_engine("none")
        with pictures.style():
            figure.savefig(directory / f"{name}.png", dpi=20)

    with _pictures_of_runs(save):
        yield


@pytest.fixture(scope="session", autouse=True)
def parameters_read_once() -> Iterator[None]:
    """The commands are built for each line that a test types; what their functions take stays."""
    read = functools.cache(typer.main.get_params_from_function)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_params_from_function", read)
        yield


@pytest.fixture(scope="session", autouse=True)
def bpf_compiled_once() -> Iterator[None]:
    """A BPF program is compiled once in this process; most tests of XDP want the same few.

    Here, and not where users compile, warnings are errors.
    """
    run, programs = clang.run_tool, {}

    def run_tool(
        command: Sequence[str], *, seconds: int, cwd: Path
    ) -> subprocess.CompletedProcess[bytes]:
        files = tuple((file.name, file.read_bytes()) for file in sorted(cwd.iterdir()))
        key = (*command, *files)
        if key not in programs:
            done = run([*command, "-Wall", "-Werror"], seconds=seconds, cwd=cwd)
            if done.returncode:
                return done
            programs[key] = done, (cwd / "program.o").read_bytes()
        done, program = programs[key]
        (cwd / "program.o").write_bytes(program)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clang, "run_tool", run_tool)
        yield


def unoptimised(config: pytest.Config) -> bool:
    """Whether C that most tests only use is not optimised: the long tests have what users have."""
    return bool(config.option.markexpr == "not slow")


@pytest.fixture(scope="session", autouse=True)
def quick_libraries(pytestconfig: pytest.Config) -> Iterator[None]:
    """C that the default tests load, meters, say, is not optimised: a third of the time.

    The long tests build it as users do, and so does the test of the cache of meters.
    """
    with pytest.MonkeyPatch.context() as patch:
        if unoptimised(pytestconfig):
            for owner, name in LOADED:
                patch.setattr(owner, name, _quickly(getattr(owner, name)))
        yield


def _quickly(make: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(make)
    def built(*given: object) -> T:
        with pytest.MonkeyPatch.context() as patch:
            quick(patch)
            return make(*given)

    return built


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, which are never part of the repository."""
    folder = Path(os.environ.get("N3IC_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "unsw_nb15").is_dir():
        pytest.skip(f"no real data in {folder} (set N3IC_DATA to a folder that has unsw_nb15/)")
    return folder


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def made_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, Callable[[Path], None]], Path]:
    """Makes a folder of a name for all processes of a run of the tests: the first one makes it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], None]) -> Path:
        folder = shared / name
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / ".made").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                (folder / ".made").touch()
        return folder

    return made


@pytest.fixture(scope="session")
def compiler() -> build.CCompiler:
    try:
        return build.find_compiler()
    except build.NoCompilerError:
        pytest.skip("needs a C compiler (gcc or clang)")


@pytest.fixture(scope="session")
def libpcap() -> None:
    """For tests that would take its absence for a result."""
    capture.libpcap()


@pytest.fixture(scope="session")
def browser() -> str:
    """A headless Chromium."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("N3IC_BROWSER") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("needs a headless Chromium (apt-get install chromium, or set N3IC_BROWSER)")
    return path


def _network_object(
    network: compilation.Sources, compiler: build.CCompiler, flags: tuple[str, ...]
) -> bytes:
    """``bnn.o`` of two objects: the kernel, which most networks share, and the weights."""
    files = dict(network)
    kernel, mark, weights = files.pop("bnn.c").partition(b"/* --- weights, compiled in ---")
    if not mark:
        return _object(network, compiler, flags)
    headers = tuple(files.items())
    weights = b'#include "bnn.h"\n#include <stdint.h>\n' + b"/*" + weights
    parts = {"kernel.o": _object((*headers, ("bnn.c", kernel)), compiler, flags)}
    parts["weights.o"] = _object.__wrapped__((*headers, ("bnn.c", weights)), compiler, flags)
    with compilation._folder(parts) as scratch:
        objects = [str(scratch / name) for name in parts]
        build._compile(compiler, ("-r", "-nostdlib", *objects), scratch / "bnn.o")
        return (scratch / "bnn.o").read_bytes()


_object = functools.lru_cache(maxsize=4)(compilation._network_object.__wrapped__)


UNOPTIMISED = tuple(flag for flag in nfp_runner.FLAGS if flag != "-O2")


@pytest.fixture(scope="module")
def quick_micro_c() -> Iterator[None]:
    """Micro-C that is not optimised; test_every_target.py optimises it, as its users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nfp_runner, "FLAGS", UNOPTIMISED)
        yield


def quick(patch: pytest.MonkeyPatch) -> None:
    """Builds of C are not optimised, and clang's where it is installed: it is faster than gcc."""
    patch.setattr(build, "FLAGS", ("-std=c11", "-O0", "-fPIC", "-shared"))
    if "CC" not in os.environ and shutil.which("clang"):
        patch.setenv("CC", "clang")


@pytest.fixture
def quick_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds that are not optimised and timed once, for tests that are not of the kernels.

    The kernel is compiled once for all networks.
    """
    quick(monkeypatch)
    monkeypatch.setenv("CFLAGS", "-O0")
    monkeypatch.setattr(runner, "REPEATS", 1)
    monkeypatch.setattr(compilation, "_network_object", _network_object)
    monkeypatch.setattr(nfp_runner, "FLAGS", UNOPTIMISED)


@pytest.fixture(scope="module")
def small_baselines() -> Iterator[None]:
    """Baselines, teachers and choosers of bits of few rounds, where no figure of theirs matters."""
    float_mlp = pytest.importorskip("n3ic.training.float_mlp")
    importance = pytest.importorskip("n3ic.training.importance")
    packed_trees = pytest.importorskip("n3ic.families.binary.packed_trees")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(float_mlp, "EPOCHS", 3)
        patch.setattr(packed_trees, "FOREST_TREES", 20)
        patch.setitem(boosted_trees.__kwdefaults__, "rounds", 20)
        patch.setitem(importance.bit_importance.__kwdefaults__, "epochs", 3)
        yield


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of few passes over their rows, for tests that look at no accuracy."""
    loop = pytest.importorskip("n3ic.training.loop")
    begin = loop.Passes.__init__

    def brief(self: object, epochs: int, *rest: int, **named: int) -> None:
        begin(self, min(epochs, 3), *rest, **named | {"choose_from": 0})

    monkeypatch.setattr(loop.Passes, "__init__", brief)


@pytest.fixture(scope="module")
def forked_nodes() -> Iterator[None]:
    """Nodes of a ring, forked from one process that has imported what they need.

    As users have them, each is a process that imports it all: see the Python of how-to/cluster.md.
    """
    dask = pytest.importorskip("dask")
    utils = pytest.importorskip("distributed.utils")
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        context = utils.get_mp_context()  # it would have pandas and more imported, too
        context.set_forkserver_preload(["distributed", "n3ic.systems.cluster.launch"])
        yield


def _compiled_kernel(out: Path) -> None:
    build.compile_shared(build.find_compiler(), build.SOURCE, out)


@pytest.fixture(scope="session")
def library(
    compiler: build.CCompiler, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> KernelLibrary:
    """The kernel without weights, not optimised where the default tests use it."""
    out = tmp_path_factory.mktemp("kernel") / "bnn.so"
    compile_kernel = _quickly(_compiled_kernel) if unoptimised(pytestconfig) else _compiled_kernel
    compile_kernel(out)
    return KernelLibrary.open(out)
