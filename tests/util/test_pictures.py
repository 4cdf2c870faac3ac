# SPDX-License-Identifier: Apache-2.0
"""One look for all pictures: told apart by everybody, whole, and the same bytes again."""

import io
import re
import sys
from itertools import combinations

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError
from n3ic.util import pictures
from n3ic.util.pictures import (
    LOOKS,
    legend,
    look,
    new_figure,
    plain,
    png,
    style,
    styled,
    whole_numbers,
    write,
)
from tests.support.pictured import BLINDNESS, lab, overhang

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_colours_differ_for_every_reader(blindness):
    """A CIE difference of 10 is plain to see side by side; white paper counts as a colour."""
    colours = [o.colour for o in LOOKS] + ["#ffffff"]
    near = {
        (a, b): float(np.linalg.norm(lab(a, blindness) - lab(b, blindness)))
        for a, b in combinations(colours, 2)
    }
    assert min(near.values()) > 10, min(near, key=near.get)


def test_series_differ_without_colours():
    for of in ("marker", "dashes", "hatch"):
        assert len({getattr(o, of) for o in LOOKS}) == len(LOOKS)
    many = [look(i) for i in range(49)]
    assert (
        len({(o.colour, o.marker) for o in many}) == len({(o.colour, o.dashes) for o in many}) == 49
    )


@styled
def drawn(names, columns=3):
    figure, axes = new_figure()
    for i, name in enumerate(names):
        axes.plot([1, 12], [i, i + 1], **look(i).curve, label=name)
    axes.set_title(plain(names[0], 60))
    whole_numbers(axes.xaxis)
    legend(figure, columns=columns)
    return figure


@pytest.mark.parametrize("names", [
    ["a"], ["binary network", "hist gradient boosting", "float mlp", "tree of as many cuts"],
    [plain("W" * 300), plain("$x_$ \x1b\n$")], [f"series {i}" for i in range(14)],
])  # fmt: skip
def test_a_legend_stays_on_the_page_and_off_the_axes(names):
    figure = drawn(names, 4)
    assert overhang(figure) < 0.02
    (box,) = figure.legends
    renderer = figure.canvas.get_renderer()
    assert not box.get_window_extent(renderer).overlaps(figure.axes[0].get_window_extent(renderer))
    assert [t.get_text() for t in box.get_texts()] == names


@pytest.mark.parametrize("last", [1, 2, 3, 7, 400])
def test_epochs_are_whole_numbers(last):
    with style():
        figure, axes = new_figure()
        axes.plot(np.arange(1, last + 1), np.zeros(last))
        whole_numbers(axes.xaxis)
        png(figure)
    shown = [t for t in axes.get_xticks() if axes.get_xlim()[0] <= t <= axes.get_xlim()[1]]
    assert shown and all(float(t).is_integer() for t in shown)


def test_names_of_files_are_text():
    assert plain("$a_$") == r"\$a_\$"
    assert plain("a\n\x1b[2Jb") == r"a \x1b[2Jb"
    assert 35 < len(plain("x" * 100)) < 45 and "…" in plain("x" * 100)
    named = [plain(f"some_quite_long_name_of_a_feature_number_{i}", 16) for i in range(3)]
    assert len({*named}) == 3 and all(len(name) < 20 for name in named)
    assert len(plain("W" * 100)) < 30 and len(plain("i" * 100)) > 60 and plain("") == ""


SCRIPTS = ["网络攻击", "هجوم", "атака", "επίθεση", "हमला", "공격", "攻撃", "😀 ok"]


@pytest.mark.filterwarnings("error")
def test_names_in_any_script_are_drawn_or_escaped():
    """No font at hand is no warning for each character, and no box."""
    write(drawn([plain(name) for name in SCRIPTS]), io.BytesIO())


@pytest.mark.filterwarnings("error")
def test_what_no_font_draws_is_an_escape(monkeypatch):
    monkeypatch.setattr(pictures, "_FURTHER_FONTS", ())
    pictures._families.cache_clear()
    try:
        assert plain("web 网") == r"web \u7f51"
        assert plain("атака") == "атака"
        write(drawn([plain(name) for name in SCRIPTS]), io.BytesIO())
    finally:
        pictures._families.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_picture_is_the_same_bytes_whatever_the_users_settings(kind):
    import matplotlib as mpl

    def made():
        stream = io.BytesIO()
        write(drawn(["a", "b"]), stream, kind)
        return stream.getvalue()

    first = made()
    hostile = {"font.size": 30, "axes.facecolor": "red", "savefig.dpi": 20, "figure.facecolor": "k"}
    with mpl.rc_context(hostile):
        assert made() == first
        assert mpl.rcParams["font.size"] == 30  # and they are left as they were


def test_a_picture_brings_its_own_ground():
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(png(drawn(["a"]))))
    assert pixels[0, 0].tolist() == [1, 1, 1, 1] and pixels[..., 3].min() == 1


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'n3ic\[train\]'"):
        drawn(["a"])


def test_every_picture_of_the_project_has_the_style(repository):
    """No module makes a figure, a colour or a legend of its own."""
    own = re.compile(
        r"plt\.|figsize=|tab:|\"C\d\"|color=\"(?!none|white)|axes\.legend\(|cmap=\"(?:Set|tab|jet)"
    )
    folders = ("n3ic", "datasets", "exporters", "systems", "scripts")
    lines = [
        f"{path.relative_to(repository)}: {line.strip()}"
        for folder in folders
        for path in (repository / folder).rglob("*.py")
        if path.name != "pictures.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if own.search(line)
    ]
    assert lines == []
