# SPDX-License-Identifier: Apache-2.0
"""Pictures looked at: what leaves the page, and what a colour-blind reader sees."""

import numpy as np

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency" (2009), severity 1.0, on linear RGB.
BLINDNESS = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
    "none": np.eye(3).tolist(),
}
_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)  # of linear sRGB, D65


def linear(colour):
    """Linear RGB of ``#rrggbb``, 0 to 1 (sRGB, IEC 61966-2-1)."""
    v = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def lab(colour, blindness="none"):
    """CIE L*a*b* of a colour as a reader sees it."""
    seen = np.clip(np.array(BLINDNESS[blindness]) @ linear(colour), 0, 1)
    x = _XYZ @ seen / _XYZ.sum(axis=1)
    f = np.where(x > (6 / 29) ** 3, np.cbrt(x), x / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def overhang(figure):
    """By how many inches the artists of a drawn figure leave its page."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.get_tightbbox(canvas.get_renderer())
    width, height = figure.get_size_inches()
    return max(-box.x0, -box.y0, box.x1 - width, box.y1 - height, 0.0)


def smallest_type(figure):
    """Size of the smallest text that is drawn, in points."""
    from matplotlib.text import Text

    return min(t.get_fontsize() for t in figure.findobj(Text) if t.get_text() and t.get_visible())
