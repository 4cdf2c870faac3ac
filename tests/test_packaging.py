# SPDX-License-Identifier: Apache-2.0
"""The distribution: what a wheel and an sdist hold, and types on the installed package."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import partial
from importlib.metadata import distribution, entry_points
from pathlib import Path

import pytest

import n3ic


@pytest.fixture(scope="module")
def built(repository, made_once):
    """A folder with a wheel and an sdist, built from the files that git would check out."""
    return made_once("dist", partial(build, repository))


def build(repository, folder):
    source = folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (repository / name).is_file() or (repository / name).is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(repository / name, source / name, follow_symlinks=False)
    script = (
        "import setuptools.build_meta as b\n"
        f"b.build_wheel({str(folder)!r}); b.build_sdist({str(folder)!r})"
    )
    subprocess.run([sys.executable, "-c", script], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")


@pytest.fixture(scope="module")
def installed(built):
    """The wheel, unpacked where nothing else is."""
    return built / "site"


@pytest.mark.slow
def test_the_wheel_holds_the_five_roots_and_their_files(installed):
    for name in (
        "n3ic/py.typed",
        "n3ic/kernel/bnn.c",
        "n3ic/kernel/stream.c",
        "n3ic/meter/c/meter.c.j2",
        "n3ic/meter/c/meter.h",
        "n3ic/exporters/host/templates/flow/flow_exec.c",
        "n3ic/exporters/host/templates/flow/live.h",
        "n3ic/datasets/iscx_tor2016/Scenario-B-merged_5s.csv.xz",
        "n3ic/datasets/unsw_nb15/card.md",
        "n3ic/datasets/ns3_tomography/card.md",
        "n3ic/exporters/nfp/device.toml",
        "n3ic/exporters/p4/interpreter/grammar.lark",
        "n3ic/families/spn/family.py",
    ):
        assert (installed / name).is_file(), name
    assert list(installed.glob("n3ic/exporters/netfpga/*/rtl/*.v"))
    assert list(installed.glob("n3ic/systems/*/netfpga/rtl/*.v"))
    assert not (installed / "datasets").exists()
    assert not (installed / "exporters").exists()
    assert not (installed / "families").exists()
    assert not (installed / "systems").exists()
    assert not list(installed.rglob("__pycache__"))
    size = sum(p.stat().st_size for p in installed.rglob("*") if p.is_file())
    assert size < 20 << 20


@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(built, installed, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    script = f"import setuptools.build_meta as b; b.build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", script], cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if "dist-info" not in n}
    have = {
        p.relative_to(installed).as_posix()
        for p in installed.rglob("*")
        if p.is_file() and "dist-info" not in p.as_posix()
    }
    assert names == have


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_strict_type_checker_passes_on_the_installed_package(installed, repository):
    # What scripts/typecheck found of files with the same digests is not found again.
    cache = installed.parent / "mypy"
    if (repository / ".mypy_cache").is_dir():
        shutil.copytree(repository / ".mypy_cache", cache)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(repository / "pyproject.toml"),
         "--cache-dir", str(cache), "-p", "n3ic"],
        cwd=installed.parent,
        env=os.environ | {"MYPYPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


def test_datasets_and_exporters_do_not_take_their_neighbours_names(tmp_path):
    code = (
        "import importlib.util, n3ic.datasets, n3ic.exporters\n"
        "assert not importlib.util.find_spec('exporters')\n"
        "spec = importlib.util.find_spec('datasets')\n"
        "assert spec is None or 'n3ic' not in str(spec.origin)\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, check=True)


def test_the_package_wins_over_a_clone_of_its_name_in_the_working_folder(repository, tmp_path):
    (tmp_path / "n3ic").symlink_to(repository)  # as after `git clone`, without an __init__.py
    code = "import n3ic; assert n3ic.__file__, n3ic.__path__; print(n3ic.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )  # the working folder is the first place of the path
    assert done.returncode == 0, done.stderr
    assert Path(n3ic.__file__).samefile(done.stdout.strip())


@pytest.mark.parametrize(
    "group",
    ["n3ic.datasets", "n3ic.usecases", "n3ic.exporters", "n3ic.families", "n3ic.learners"],
)
def test_every_entry_point_loads_what_its_group_promises(group):
    from n3ic.data.dataset import DataSet
    from n3ic.model.family import Family
    from n3ic.runs.learner import Learner
    from n3ic.targets.base import Exporter
    from n3ic.usecases.base import UseCase

    kind = {
        "n3ic.datasets": DataSet,
        "n3ic.usecases": UseCase,
        "n3ic.exporters": Exporter,
        "n3ic.families": Family,
        "n3ic.learners": Learner,
    }[group]
    points = entry_points(group=group)
    assert points
    for point in points:
        plugin = point.load()
        assert isinstance(plugin, kind), point
        assert plugin.name == point.name


@pytest.mark.slow
def test_the_version_stands_in_one_place(installed, repository):
    (info,) = installed.glob("n3ic-*.dist-info")
    built = re.search(r"^Version: (.+)$", (info / "METADATA").read_text(), re.MULTILINE)
    assert built and built[1] == n3ic.__version__
    cited = re.search(r"^version: (.+)$", (repository / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited and cited[1] == n3ic.__version__
    assert n3ic.__version__ not in (repository / "pyproject.toml").read_text()


def test_the_lowest_versions_are_those_that_are_claimed(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    claimed = [*project["dependencies"], *extras["train"], *extras["onnx"]]
    lowest = dict(
        line.split("#")[0].strip().split("==")
        for line in (repository / "constraints-lowest.txt").read_text().splitlines()
        if "==" in line
    )
    for requirement in claimed:
        name, version = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
        if name != "torch":  # an older one is another download of gigabytes
            assert f"{lowest[name]}.0.0".startswith(f"{version}."), requirement


def test_the_plain_installation_needs_no_training_library():
    needed = [
        line.split(";")[0].split(">")[0].split("<")[0].split("=")[0].strip()
        for line in distribution("n3ic").requires or []
        if "extra ==" not in line
    ]
    base = {"jinja2", "lark", "numpy", "platformdirs", "pyarrow", "rich", "safetensors"}
    base |= {"typer", "typing-extensions"}
    assert set(needed) == base


def test_exporters_never_import_training_libraries(tmp_path):
    code = (
        "import sys; from n3ic import plugins\n"
        "for name in plugins.names('n3ic.exporters'):\n"
        "    plugins.load('n3ic.exporters', name).device\n"
        "heavy = {'torch', 'pandas', 'sklearn', 'brevitas', 'onnx', 'matplotlib'}\n"
        "bad = heavy & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(bad)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
