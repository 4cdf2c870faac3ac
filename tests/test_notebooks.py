# SPDX-License-Identifier: Apache-2.0
"""The notebooks run from a clean kernel, and what they show is what is kept of them."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from tests.support import forked_kernel

ROOT = Path(__file__).resolve().parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 300_000
LIBBPF = "/usr/include/bpf/bpf_helpers.h"
TOOLS = {  # on the PATH, or files
    "5-export-and-prove": ("gcc", "clang", LIBBPF, "iverilog", "verilator"),
    "6-from-a-capture-to-verdicts": ("gcc", "make"),
}

_spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts" / "notebooks.py")
assert _spec
assert _spec.loader
notebooks = importlib.util.module_from_spec(_spec)
sys.modules["notebooks"] = notebooks
_spec.loader.exec_module(notebooks)

every = pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
LONGEST = ("2-", "4-", "5-", "6-", "8-")  # a release alone runs them


def read(path):
    return nbformat.read(path, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_folder_has_eight_notebooks():
    assert [p.stem[0] for p in PATHS] == list("12345678")


@every
def test_one_line_switches_to_your_data(path):
    cells = code(read(path))
    assignments = [re.findall(r"^DATA\b.*= None", c.source, re.MULTILINE) for c in cells]
    assert len(assignments[0]) == 1
    assert not any(assignments[1:])


@every
def test_a_notebook_is_small_and_has_outputs(path):
    notebook = read(path)
    assert path.stat().st_size < MOST_BYTES
    nbformat.validate(notebook)
    kinds = {k for c in code(notebook) for k, _ in notebooks._outputs(c, True)}
    assert {"image/png", "text/html"} <= kinds
    assert kinds.isdisjoint({"error", "stderr"})


@every
def test_what_is_kept_tells_nothing_of_the_run(path):
    text = path.read_text()
    assert "iopub" not in text
    assert not re.search(r"/tmp/|/home/|/root/|/Users/", text)
    notebook = read(path)
    assert [c.id for c in notebook.cells] == [f"cell-{i:02}" for i in range(len(notebook.cells))]
    assert [c.execution_count for c in code(notebook)] == [
        i for i, _ in enumerate(code(notebook), 1)
    ]


def test_a_change_is_seen():
    path = PATHS[0]
    notebook, other = read(path), read(path)
    assert notebooks.differences(notebook, other) == []
    cell = next(c for c in code(other) if any("data" in o for o in c.outputs))
    output = next(o for o in cell.outputs if "data" in o)
    output.data["text/plain"] = "another figure"
    assert [d.partition(":")[0] for d in notebooks.differences(notebook, other)] == [cell.id]
    assert notebooks.differences(notebook, other, texts=False) == []
    cell.metadata["tags"] = [notebooks.VARIES]
    notebook.cells[other.cells.index(cell)].metadata["tags"] = [notebooks.VARIES]
    assert notebooks.differences(notebook, other) == []
    cell.outputs = []
    assert notebooks.differences(notebook, other, texts=False)


@pytest.fixture(scope="module", name="kernel")
def kernel_with_the_libraries_imported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jupyter")
    with forked_kernel.kernels(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder))
        yield forked_kernel.NAME


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=path.stem,
            marks=pytest.mark.exhaustive if path.stem.startswith(LONGEST) else (),
        )
        for path in PATHS
    ],
)
def test_a_notebook_runs_from_a_clean_kernel_and_its_outputs_are_current(path, tmp_path, kernel):
    wanted = TOOLS.get(path.stem, ())
    if lacking := [t for t in wanted if not (shutil.which(t) or Path(t).is_file())]:
        pytest.skip(f"{path.name} needs {', '.join(lacking)}")
    try:
        notebook, fresh_notebook = read(path), notebooks.execute(path, tmp_path, kernel)
    except CellExecutionError as error:
        if error.ename == "MissingDependencyError":
            pytest.skip(f"{path.name}: {error.evalue}")
        raise
    # Figures are those of the libraries and the processor that they were computed with.
    same = notebook.metadata.computed_on == fresh_notebook.metadata.computed_on
    assert notebooks.differences(notebook, fresh_notebook, texts=same) == []
