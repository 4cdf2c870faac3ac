#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One random forest in C by n3ic, m2cgen and conifer: nanoseconds a row and bytes, in one process.

    pip install m2cgen conifer pybind11     # no dependencies of n3ic
    apt-get install nlohmann-json3-dev      # which conifer's C++ includes
    python scripts/forest_marks.py [--data UNSW_NB15_testing-set.csv]

Without data, the rows are random. All sources are compiled with the same options and run on one
core, in turns; the fastest of several passes counts. Before that, the classes of all are compared.
What is not installed is left out. m2cgen's C and conifer's C++ compute in floats, and conifer's is
made to emulate its circuits, not for speed.

For P4, it estimates the tables of Planter from the rules of its papers (Zheng and Zilberman,
"Planter: Seeding Trees Within Switches", SIGCOMM 2021; Zheng et al., "Planter: Rapid Prototyping of
In-Network Machine Learning Inference", SIGCOMM CCR 2024): a table for each feature, whose ranges
become codes, a table for each tree, whose key are codes, and a table of votes.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import n3ic
from n3ic.errors import N3icError
from n3ic.exporters.host.compilation import find_compiler
from n3ic.exporters.host.runner import compile_library
from n3ic.model.classifier import Classifier
from n3ic.options import parse_options
from n3ic.training.input_choice import candidates
from n3ic.usecases.base import use_case
from n3ic.util.markdown import table

ROWS = Path(__file__).with_name("forest_rows")
FLAGS = ("-O2", "-fPIC", "-shared")
PASSES = 40
LEAVES = 16
Classes = NDArray[np.uint32]


class Contestant(NamedTuple):
    """One way to compute the forest in C.

    Attributes:
        name: its name in the table.
        classify: computes the class of every row.
        source_bytes: bytes of the source, and of what it reads at run time.
        object_bytes: bytes of functions and constants, and of what it reads at run time.
    """

    name: str
    classify: Callable[[], Classes]
    source_bytes: int
    object_bytes: int


def main() -> int:
    """Fit a forest, and print the tables."""
    arguments = _arguments()
    rows, label = _rows(arguments.data)
    order = np.random.default_rng(1).permutation(len(rows))  # kinds of flows mix on a network
    rows, label = rows.iloc[order], label[order]
    forest = _fitted(rows, label, arguments.trees)
    model = n3ic.from_sklearn(forest, rows)
    expected = forest.predict(rows).astype(np.uint32)
    print(f"{model.shape_text}, {len(rows.columns)} features, {len(rows):,} rows; compiled with "
          f"{' '.join(FLAGS)}\n")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="forest-marks-") as name:
        folder = Path(name)
        contestants = [
            *_own(model, rows, folder),
            *_optional(_m2cgen, "m2cgen", forest, rows, folder),
            *_optional(_conifer, "conifer", forest, rows, folder),
        ]
        for each in contestants:
            differ = int((each.classify() != expected).sum())
            print(f"{each.name}: {differ:,} rows differ from the forest's predict")
        print()
        print("\n".join(_times(contestants, len(rows))))
        print()
        print("\n".join(_switch_tables(model, forest, folder)))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", help="rows of UNSW-NB15; random rows without")
    parser.add_argument("--trees", type=int, default=30)
    return parser.parse_args()


def _rows(data: str | None) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Integer columns that float32 holds exactly, and the class of each row."""
    if data is None:
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({f"x{i}": rng.integers(0, 1 << 16, 50_000) for i in range(20)})
        wave = (frame["x0"] * 3 + frame["x1"] - frame["x2"] * 2) % 70_000
        return frame, (wave + frame["x3"] > 60_000).to_numpy().astype(np.int64)
    case = use_case("anomaly")
    options = parse_options(case.options, {}, case.name)
    flows = case.tasks(case.load(data, None, options, print), options)[""]
    columns = candidates(flows, case.recipes["default"])
    matrix = np.clip(flows.matrix(columns), 0, (1 << 24) - 1)
    return pd.DataFrame(matrix, columns=[*columns]), flows.label


def _fitted(rows: pd.DataFrame, label: NDArray[np.int64], trees: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    # So many leaves have no greater depth; conifer asks for one.
    forest = RandomForestClassifier(
        trees, max_leaf_nodes=LEAVES, max_depth=LEAVES - 1, random_state=0, n_jobs=1
    )
    return forest.fit(rows, label)


def _own(model: Classifier, rows: pd.DataFrame, folder: Path) -> list[Contestant]:
    """n3ic's C in both styles."""
    integers = np.ascontiguousarray(rows[list(model.input.features)].to_numpy(), dtype=np.uint32)
    classes = np.zeros(len(rows), dtype=np.uint32)
    n3ic.export(model, "host", folder / "fast")
    library, _ = compile_library(folder / "fast")
    network = library.baked()
    run = library.handle.bnn_run_batch

    def fast() -> Classes:
        run(network.pointer, integers, len(integers), classes.ctypes.data, None, _scores)
        return classes

    _scores = np.empty((len(rows), len(model.classes)), dtype=np.int32)
    n3ic.export(model, "host", folder / "plain", style="plain")
    plain = _compiled(ROWS / "plain.c", folder / "plain.so", folder / "plain")
    return [
        Contestant("n3ic, `host`", fast, _bytes(folder / "fast" / "bnn.c"),
                   _object_bytes(folder / "fast" / "bnn.c", folder / "fast")),
        Contestant("n3ic, `host --style plain`", _calling(plain, integers),
                   sum(_bytes(folder / "plain" / f"n3ic_model.{s}") for s in "ch"),
                   _object_bytes(folder / "plain" / "n3ic_model.c", folder / "plain")),
    ]  # fmt: skip


def _m2cgen(forest: Any, rows: pd.DataFrame, folder: Path) -> Contestant:
    """The C of m2cgen, in doubles that scikit-learn's floats became."""
    source = folder / "forest.c"
    source.write_text(importlib.import_module("m2cgen").export_to_c(forest), encoding="utf-8")
    library = _compiled(ROWS / "m2cgen.c", folder / "m2cgen.so", folder, _sizes(forest))
    doubles = np.ascontiguousarray(rows.to_numpy(), dtype=np.float32).astype(np.float64)
    return Contestant("m2cgen, C", _calling(library, doubles), _bytes(source),
                      _object_bytes(source, folder))  # fmt: skip


def _conifer(forest: Any, rows: pd.DataFrame, folder: Path) -> Contestant:
    """The C++ of conifer's backend ``cpp`` in floats."""
    conifer = importlib.import_module("conifer")
    out = folder / "conifer"
    how = {"Backend": "cpp", "ProjectName": "forest", "OutputDir": str(out), "Precision": "float"}
    conifer.converters.convert_from_sklearn(forest, how).write()
    headers = Path(str(conifer.__file__)).parent / "backends" / "cpp" / "include"
    library = _compiled(ROWS / "conifer.cpp", folder / "conifer.so", headers, _sizes(forest))
    library.load_forest.restype = ctypes.c_void_p
    trees = library.load_forest(str(out / "forest.json").encode())
    floats = np.ascontiguousarray(rows.to_numpy(), dtype=np.float32)
    classes = np.zeros(len(rows), dtype=np.uint32)

    def classify() -> Classes:
        library.classify_rows(
            ctypes.c_void_p(trees), ctypes.c_void_p(floats.ctypes.data),
            ctypes.c_size_t(len(floats)), ctypes.c_void_p(classes.ctypes.data),
        )  # fmt: skip
        return classes

    read = _bytes(out / "forest.json")
    return Contestant(
        "conifer, C++",
        classify,
        read + _bytes(headers / "conifer.h"),
        read + _object_bytes(ROWS / "conifer.cpp", headers, _sizes(forest)),
    )


def _optional(
    make: Callable[[Any, pd.DataFrame, Path], Contestant], name: str, *arguments: Any
) -> list[Contestant]:
    """A contestant of another package, or a line on why there is none."""
    try:
        return [make(*arguments)]
    except (ImportError, subprocess.CalledProcessError) as error:
        print(f"{name}: left out ({error})")
        return []


def _sizes(forest: Any) -> tuple[str, ...]:
    return f"-DFEATURES={forest.n_features_in_}", f"-DCLASSES={len(forest.classes_)}"


def _compiled(
    source: Path, library: Path, headers: Path, defines: Sequence[str] = ()
) -> ctypes.CDLL:
    _compile(source, library, FLAGS, headers, defines)
    return ctypes.CDLL(str(library))


def _compile(
    source: Path, out: Path, flags: Sequence[str], headers: Path, defines: Sequence[str]
) -> None:
    c = [*find_compiler().command, "-std=c11"]
    language = ["g++", "-std=c++17"] if source.suffix == ".cpp" else c
    words = [*language, *flags, f"-I{headers}", *defines, str(source), "-o", str(out)]
    subprocess.run(words, check=True)


def _calling(library: ctypes.CDLL, rows: NDArray[Any]) -> Callable[[], Classes]:
    """Classify rows by a library's ``classify_rows``."""
    classes = np.zeros(len(rows), dtype=np.uint32)

    def classify() -> Classes:
        library.classify_rows(
            ctypes.c_void_p(rows.ctypes.data), ctypes.c_size_t(len(rows)),
            ctypes.c_void_p(classes.ctypes.data),
        )  # fmt: skip
        return classes

    return classify


def _bytes(path: Path) -> int:
    return path.stat().st_size


def _object_bytes(source: Path, headers: Path, defines: Sequence[str] = ()) -> int:
    """Bytes of the functions, constants and variables of an object file, by binutils' ``size``."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "forest.o"
        _compile(source, out, ("-O2", "-c"), headers, defines)
        completed = subprocess.run(["size", str(out)], check=True, capture_output=True, text=True)
    return int(completed.stdout.splitlines()[1].split()[3])


def _times(contestants: Sequence[Contestant], rows: int) -> list[str]:
    """A table of the fastest passes, whose turns follow each other."""
    best = [float("inf")] * len(contestants)
    for _ in range(PASSES):
        for i, each in enumerate(contestants):
            start = time.perf_counter()
            each.classify()
            best[i] = min(best[i], time.perf_counter() - start)
    lines = [
        [each.name, f"{seconds / rows * 1e9:,.0f}", f"{seconds / best[0]:.1f}",
         f"{each.source_bytes:,}", f"{each.object_bytes:,}"]
        for each, seconds in zip(contestants, best, strict=True)
    ]  # fmt: skip
    return table(["C", "ns a row", "ratio", "bytes of source", "bytes of object"], lines)


def _switch_tables(model: Classifier, forest: Any, folder: Path) -> list[str]:
    """Tables and entries for P4: Planter's by its rules, and ours if the target takes trees."""
    features, cuts = len(model.input.features), model.input.n_cuts
    trees = len(forest.estimators_)
    leaves = sum(int(tree.get_n_leaves()) for tree in forest.estimators_)
    lines = [
        ["Planter, estimated", f"{features + trees + 1:,}", f"{cuts + features + leaves:,} without "
         "votes"]
    ]  # fmt: skip
    try:
        report = n3ic.export(model, "p4", folder / "p4").report
        figures = {figure.name: f"{figure.value:,.0f}" for figure in report.figures}
        own = [figures[name] for name in ("tables", "table.entries")]
        lines.append(["n3ic, `p4`", *own])
    except N3icError as error:
        lines.append(["n3ic, `p4`", "refused", str(error)])
    return table(["P4", "tables", "entries"], lines)


if __name__ == "__main__":
    sys.exit(main())
