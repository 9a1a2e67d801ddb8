"""Draw plots as inline SVG that uses the page's colors and font.

Matplotlib draws with placeholder colors, which are then replaced by the page's CSS variables, so
that the same plot suits light mode, dark mode and print. Plots contain no text from the user: names
are in the legends, which are HTML.
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from trainer.metrics.classifier import Bin, Curve
from trainer.metrics.intervals import wilson_interval

MUTED = "#020202"

# Five colors that color-blind readers can distinguish, then the same five dashed.
_COLORS = ["#040401", "#040402", "#040403", "#040404", "#040405"]
_VARIABLES = {
    "#010101": "var(--ink)",
    MUTED: "var(--muted)",
    "#030303": "var(--line)",
    **{color: f"var(--s{number})" for number, color in enumerate(_COLORS, start=1)},
}
_STYLE = Path(__file__).with_name("plots.mplstyle")
_DOTTED: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (1, 2))}


def line_style(series: int) -> dict[str, Any]:
    """Return the color and dashes of a series from 1 to 10."""
    color = _COLORS[(series - 1) % len(_COLORS)]
    return {"color": color, "linestyle": "-" if series <= len(_COLORS) else (0, (4, 2))}


def _create_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _to_svg(figure: Figure, description: str) -> Markup:
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    unneeded = r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->"
    svg = re.sub(unneeded, "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    # Remove the white background of the figure and the axes.
    svg = re.sub(r"fill: #ffffff", "fill: none", svg)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box
    body = svg[svg.index(">") + 1 :]
    head = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'role="img" aria-label="{}" {}>'
    ).format(description, Markup(box.group()))  # noqa: S704 - matplotlib's own numbers
    return head + Markup(re.sub(r"\s*\n\s*", "\n", body))  # noqa: S704 - drawn here, from numbers


@mpl.rc_context(fname=_STYLE)
def draw_lines(
    x: Sequence[float],
    series: Sequence[Sequence[float | None]],
    *,
    y_label: str,
    description: str,
    best: float | None = None,
    phase_starts: Sequence[float] = (),
    first_series: int = 1,
) -> Markup:
    """Draw one line per series over the epochs in `x`, or the first of them; skip missing values.

    Vertical lines mark `best` and the start of each phase.
    """
    figure = _create_figure(4.2, 2.9)
    axes = figure.add_subplot()
    for start in phase_starts:
        axes.axvline(start - 0.5, color=MUTED, linewidth=1)
    if best is not None:
        axes.axvline(best, color=MUTED, **_DOTTED)
    for number, values in enumerate(series, start=first_series):
        points = [(at, value) for at, value in zip(x, values, strict=False) if value is not None]
        marker = "o" if len(points) <= 12 else None
        axes.plot(*zip(*points, strict=True), **line_style(number), marker=marker, markersize=3.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    axes.set(xlabel="epoch", ylabel=y_label)
    return _to_svg(figure, description)


@mpl.rc_context(fname=_STYLE)
def draw_curves(
    curves: Sequence[Curve], x_label: str, y_label: str, description: str, *, steps: bool = False
) -> Markup:
    """Draw curves between 0 and 1: lines with the diagonal of chance, or steps."""
    figure = _create_figure(4.8, 3.9)
    axes = figure.add_subplot()
    if not steps:
        axes.plot([0, 1], [0, 1], color=MUTED, **_DOTTED)
    style = "steps-pre" if steps else "default"
    for number, curve in enumerate(curves, start=1):
        axes.plot(curve.x, curve.y, drawstyle=style, **line_style(number), clip_on=False)
    _set_unit_square(axes, x_label, y_label)
    return _to_svg(figure, description)


@mpl.rc_context(fname=_STYLE)
def draw_reliability(bins: Sequence[Bin], description: str) -> Markup:
    """Draw accuracy over confidence with 95% intervals, above a histogram of confidence."""
    figure = _create_figure(4.8, 4.3)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
    filled = [item for item in bins if item.count]
    width = bins[0].high - bins[0].low
    left = [item.low + 0.06 * width for item in filled]
    upper.plot([0, 1], [0, 1], color=MUTED, **_DOTTED)
    bars = {"width": 0.88 * width, "align": "edge", "linewidth": 0}
    accuracies = [item.accuracy for item in filled]
    upper.bar(left, accuracies, color=_COLORS[0], alpha=0.3, **bars)
    dot = {"marker": "o", "markersize": 4, "clip_on": False}
    for item in filled:
        # The 95% interval shows how uncertain a bin with few examples is.
        right = (item.accuracy or 0.0) * item.count
        at = [item.confidence, item.confidence]
        upper.plot(at, wilson_interval(right, item.count), color=_COLORS[0], linewidth=1.2)
        upper.plot(at[0], item.accuracy, color=_COLORS[0], **dot)
    _set_unit_square(upper, "", "accuracy")
    lower.bar(left, [item.count for item in filled], color=MUTED, alpha=0.55, **bars)
    lower.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
    lower.set(xlabel="confidence", ylabel="examples")
    lower.grid(axis="x", visible=False)
    figure.align_ylabels()
    return _to_svg(figure, description)


@mpl.rc_context(fname=_STYLE)
def draw_points(labels: np.ndarray, answers: np.ndarray, description: str) -> Markup:
    """Draw answers over their labels, float [n] each, with the line on which they are equal."""
    figure = _create_figure(4.8, 4.3)
    axes = figure.add_subplot()
    ends = [min(labels.min(), answers.min()), max(labels.max(), answers.max())]
    axes.plot(ends, ends, color=MUTED, **_DOTTED)
    axes.scatter(labels, answers, s=5, color=_COLORS[0], alpha=0.4, linewidths=0)
    axes.set(xlabel="label", ylabel="answer")
    return _to_svg(figure, description)


@mpl.rc_context(fname=_STYLE)
def draw_trials(
    x: Sequence[Any],
    values: Sequence[float],
    *,
    x_label: str,
    y_label: str,
    description: str,
    is_log: bool = False,
    best: Sequence[float] = (),
) -> Markup:
    """Draw a point per trial, and a line of the best so far; `x` may be names."""
    figure = _create_figure(4.2, 2.9)
    axes = figure.add_subplot()
    if best:
        axes.plot(x, best, drawstyle="steps-post", color=MUTED)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.scatter(x, values, s=18, color=_COLORS[0], linewidths=0)
    if is_log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=x_label, ylabel=y_label)
    return _to_svg(figure, description)


@mpl.rc_context(fname=_STYLE)
def draw_histogram(values: np.ndarray, x_label: str, description: str) -> Markup:
    """Draw the distribution of values, float [n], with a line at 0."""
    figure = _create_figure(4.8, 4.3)
    axes = figure.add_subplot()
    axes.hist(values, bins=40, color=_COLORS[0], alpha=0.5)
    axes.axvline(0, color=MUTED, **_DOTTED)
    axes.set(xlabel=x_label, ylabel="examples")
    return _to_svg(figure, description)


def _set_unit_square(axes: Axes, x_label: str, y_label: str) -> None:
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    axes.set(xlim=(0, 1), ylim=(0, 1.0), xticks=ticks, yticks=ticks)
    axes.set(xlabel=x_label, ylabel=y_label)
