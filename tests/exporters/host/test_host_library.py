# SPDX-License-Identifier: Apache-2.0
"""An export as a library of other people's projects: kernels by switch, CMake and pkg-config."""

import ctypes
import itertools
import shutil
import subprocess

import numpy as np
import pytest

from n3ic.kernel import build
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export
from tests.support.family_models import small_model

MODELS = {
    "network": random_model((40, 9, 3), np.random.default_rng(4), extremes=False),
    "trees": small_model("decision-trees"),
    "tables": small_model("look-up-tables"),
}
SWITCHES = ("POPCNT", "AVX2", "AVX512", "NEON")
MAIN = """#include <bnn.h>
#include <stdio.h>

int main(void) {
    struct bnn *net;
    uint32_t word, features[64] = {0}, words[64] = {0};

    if (bnn_abi_version() != BNN_ABI_VERSION || bnn_init(&net) != BNN_OK)
        return 1;
    while (scanf("%u", &word) == 1) {
        features[0] = word;
        bnn_encode(net, features, words);
        printf("%u\\n", bnn_infer(net, words, NULL));
    }
    for (uint32_t i = 0; bnn_kernel_name(i); i++)
        printf("%s\\n", bnn_kernel_name(i));
    bnn_free(net);
    return 0;
}
"""
PROJECT = """cmake_minimum_required(VERSION 3.16)
project(mine LANGUAGES C)
find_package(n3ic 1 REQUIRED)
add_executable(mine main.c)
target_link_libraries(mine PRIVATE n3ic::bnn)
"""


def kernels_without(directory, switches, folder):
    """Names of the kernels of ``bnn.c``, compiled without some; a warning fails."""
    library = folder / "bnn.so"
    command = [*build.find_compiler().command, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"]
    command += [f"-DBNN_NO_{name}" for name in switches]
    command += ["-shared", "-fPIC", str(directory / "bnn.c"), "-o", str(library)]
    subprocess.run(command, check=True, timeout=600)
    name = ctypes.CDLL(str(library)).bnn_kernel_name
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.c_uint32]
    return [text.decode() for text in iter(map(name, itertools.count()).__next__, None)]


@pytest.mark.parametrize("kind", MODELS)
def test_without_all_switches_the_portable_kernel_remains(kind, tmp_path):
    path = export(MODELS[kind], "host", tmp_path / "out", verify=False).path
    assert kernels_without(path, SWITCHES, tmp_path) == ["portable"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", MODELS)
def test_each_switch_leaves_out_its_kernel(kind, tmp_path):
    path = export(MODELS[kind], "host", tmp_path / "out", verify=False).path
    every = kernels_without(path, (), tmp_path)
    for index, switches in enumerate(
        itertools.chain.from_iterable(itertools.combinations(SWITCHES, n) for n in (1, 2, 3))
    ):
        folder = tmp_path / str(index)
        folder.mkdir()
        expected = [name for name in every if name.upper() not in switches]
        assert kernels_without(path, switches, folder) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_another_project_finds_the_library(kind, tmp_path):
    """A project of CMake by ``find_package``, and a command by ``pkg-config``."""
    for tool in ("cmake", "pkg-config"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    model = MODELS[kind]
    path = export(model, "host", tmp_path / "out", verify=False).path
    prefix, mine = tmp_path / "prefix", tmp_path / "mine"
    mine.mkdir()
    (mine / "main.c").write_text(MAIN)
    (mine / "CMakeLists.txt").write_text(PROJECT)

    def cmake(*arguments):
        subprocess.run(["cmake", *map(str, arguments)], check=True, timeout=600, cwd=tmp_path)

    cmake(
        "-S", path, "-B", path / "build", "-D", "BNN_AVX512=OFF", f"-DCMAKE_INSTALL_PREFIX={prefix}"
    )
    cmake("--build", path / "build")
    cmake("--install", path / "build")
    cmake("-S", mine, "-B", mine / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    cmake("--build", mine / "build")
    values = [0, 1, 7, 300, 40_000, 2**32 - 1]
    rows = {name: np.zeros(len(values), np.int64) for name in model.input.features}
    rows[model.input.features[0]][:] = values
    classes = model.infer(model.encode(rows)).classes
    asked = "\n".join(map(str, values))
    (pc,) = prefix.rglob("n3ic.pc")
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "n3ic"],
        env={"PKG_CONFIG_PATH": str(pc.parent), "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    program = tmp_path / "by-pkg-config"
    compiler = build.find_compiler().command
    subprocess.run([*compiler, mine / "main.c", "-o", program, *flags], check=True, timeout=300)
    for binary in (mine / "build" / "mine", program):
        words = subprocess.run(
            [binary], input=asked, check=True, capture_output=True, text=True, timeout=60
        ).stdout.split()
        assert [int(word) for word in words[: len(values)]] == classes.tolist()
        assert "portable" in words and "avx512" not in words
