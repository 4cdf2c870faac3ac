# SPDX-License-Identifier: Apache-2.0
"""The look of every matplotlib picture, and how its file is written.

Series differ in colour, mark and dashes, so that they can be told apart in grey and by colour-blind
readers. The colours are those of Okabe and Ito, "Color Universal Design" (2008), without yellow,
which is too pale on white. Pictures have a white background, so they are readable on dark pages.
Legends are outside the axes and inside the page. The type is large enough for half the size.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from n3ic.errors import needed
from n3ic.util.names import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

DPI = 120
INK, SOFT, PALE = "#000000", "#666666", "#d9d9d9"
_POINTS = 12.0  # size of the type
_CHARACTER = 0.6  # mean width of a character, in sizes
_KEY = 6.0  # width of a legend's line and gaps, in sizes of its type
_STYLE: dict[str, Any] = {
    "font.size": _POINTS,
    "axes.titlesize": _POINTS,
    "figure.titlesize": _POINTS,
    "figure.labelsize": _POINTS,
    "legend.fontsize": _POINTS - 1,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.facecolor": "white",
    "axes.grid": False,
    "grid.color": "#cccccc",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 2.0,
    "lines.markersize": 6.0,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "hatch.linewidth": 0.8,
    "svg.hashsalt": "n3ic",
}
_FONT = "DejaVu Sans"  # matplotlib's own: Latin, Greek, Cyrillic, Arabic, Hebrew and more
_FURTHER_FONTS = (  # of other scripts, where they are installed
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Source Han Sans SC"),
    *("WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "Noto Sans Devanagari"),
    *("Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Thai", "Noto Sans Ethiopic"),
    *("FreeSans", "Noto Emoji", "Symbola", "Unifont"),
)
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Look:
    """How one series looks.

    Attributes:
        colour: as ``#rrggbb``.
        marker: matplotlib's mark of a point.
        dashes: matplotlib's style of a line.
        hatch: matplotlib's pattern of an area.
    """

    colour: str
    marker: str
    dashes: str | tuple[float, tuple[float, ...]]
    hatch: str

    @property
    def line(self) -> dict[str, Any]:
        """Keywords of a line without marks."""
        return {"color": self.colour, "linestyle": self.dashes}

    @property
    def curve(self) -> dict[str, Any]:
        """Keywords of a line with a mark at each point."""
        return self.line | {"marker": self.marker}

    @property
    def area(self) -> dict[str, Any]:
        """Keywords of a bar or a box."""
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": "white"}


LOOKS = (
    Look("#0072B2", "o", "-", ""),
    Look("#D55E00", "s", (0, (5, 1.5)), "//"),
    Look("#009E73", "^", (0, (5, 1.5, 1, 1.5)), ".."),
    Look("#E69F00", "D", (0, (1, 1)), "xx"),
    Look("#CC79A7", "v", (0, (8, 2)), "\\\\"),
    Look("#56B4E9", "P", (0, (5, 1, 1, 1, 1, 1)), "++"),
    Look("#000000", "X", (0, (3, 3)), "--"),
)


def look(number: int) -> Look:
    """The look of a series by its number from 0; those of the first 49 differ."""
    n = len(LOOKS)
    own, other = LOOKS[number % n], LOOKS[(number + number // n) % n]
    return Look(own.colour, other.marker, other.dashes, other.hatch)


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib with the look of n3ic, whatever the user's own settings.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    with needed("a picture"):
        from matplotlib.style import context
    with context(["default", _STYLE | {"font.family": list(_families())}]):
        yield


@cache
def _families() -> tuple[str, ...]:
    """Families of fonts; a character is drawn by the first one that has it."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return _FONT, *(name for name in _FURTHER_FONTS if name in installed)


@cache
def _characters(families: tuple[str, ...]) -> frozenset[int]:
    """Code points that one of these families draws."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    fonts = (get_font(findfont(FontProperties(family=name))) for name in families)
    return frozenset().union(*(font.get_charmap() for font in fonts))


def _drawable(text: str) -> str:
    """Text in which characters that no font here draws are Python's escapes."""
    known = _characters(_families())
    return "".join(
        c if ord(c) in known else c.encode("unicode_escape").decode("ascii") for c in text
    )


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a drawing function so that it runs in :func:`style`."""

    @wraps(function)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with style():
            return function(*args, **kwargs)

    return drawn


def new_page(width: float, height: float) -> Figure:
    """A figure without axes, in inches, that is laid out so that nothing overlaps."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def new_figure(width: float = 6.4, height: float = 4.8) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, without any global state."""
    figure = new_page(width, height)
    return figure, figure.subplots()


def plain(text: object, most: int = 40) -> str:
    """Text of a file or a user for a picture: no formula, no control characters, not too long.

    Characters that no installed font draws are shown as escapes.

    Args:
        text: what to write.
        most: room, in characters of mean width. Longer text loses its middle, as many names
            differ only at their ends.
    """
    shown = _drawable(" ".join(visible(str(text)).split()))
    room, length = most * _CHARACTER * _POINTS, min(len(shown), 4 * most)
    cut = shown if length == len(shown) else f"{shown[:length]}…"
    while length > 1 and (width := _width(cut)) > room:
        length = max(
            1, min(length - 1, int(length * room / width))
        )  # at least one less, so this ends
        cut = f"{shown[: length - length // 3]}…{shown[len(shown) - length // 3 :]}"
    return cut.replace("$", r"\$")  # a dollar sign would begin a formula


def _width(text: str, size: float = _POINTS) -> float:
    """Width of a line of text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=list(_families()), size=size)
    extent = text_to_path.get_text_width_height_descent(text, font, False)
    return float(extent[0])


def legend(figure: Figure | SubFigure, *axes: Axes, columns: int = 3, title: str = "") -> None:
    """Add a legend below the axes, inside the page, with each name once.

    Args:
        figure: the figure or part of a figure that it belongs to.
        axes: the axes whose series it names; all axes of the figure if none are given.
        columns: largest number of columns; fewer are used if names are long.
        title: its title.
    """
    handle_of: dict[str, Any] = {}
    for axis in axes or figure.axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handle_of.setdefault(name, handle)
    if not handle_of:
        return
    names = list(handle_of)
    size = _STYLE["legend.fontsize"]
    widest = max(_width(name, size) for name in names)
    room = 72 * figure.bbox.width / figure.dpi
    fit = max(1, min(columns, len(names), int(room / (widest + _KEY * size))))
    figure.legend(
        handle_of.values(), names, loc="outside lower center", ncols=fit, title=title or None
    )


def whole_numbers(axis: Axis) -> None:
    """Put ticks only at integers, such as epochs."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def write(figure: Figure, stream: IO[bytes], kind: Literal["png", "svg"] = "png") -> None:
    """Write a picture; equal pictures give equal bytes.

    Args:
        figure: the picture.
        stream: where to write.
        kind: the format.
    """
    metadata = (
        {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    )  # these vary
    with style():
        figure.savefig(stream, dpi=DPI, format=kind, metadata=metadata)


def png(figure: Figure) -> bytes:
    """A picture as the bytes of a PNG file."""
    stream = io.BytesIO()
    write(figure, stream)
    return stream.getvalue()


def png_url(figure: Figure) -> str:
    """A picture as a URL that holds it, for a page that needs no other file."""
    return f"data:image/png;base64,{base64.b64encode(png(figure)).decode()}"


def save(figure: Figure, directory: Path, name: str) -> None:
    """Write a picture as ``NAME.png`` into a folder."""
    (directory / f"{name}.png").write_bytes(png(figure))
