"""Charts by matplotlib: as SVG for a page, in colours that the page chooses, or as a file."""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator


@dataclass(frozen=True)
class Palette:
    """Colours of text, of lines that stand back, and of what is shown."""

    ink: str
    faint: str
    series: tuple[str, ...]


# Those of an SVG stand for variables of the page, so that it follows light and dark.
OF_PAGE = Palette("#010203", "#040506", ("#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", "#0a0b05", "#0a0b06"))
OF_FILE = Palette("#1f2933", "#c9d1d9", ("#2f6fde", "#e8833a", "#2b9a66", "#8e5bd0", "#d0447f", "#7a828c"))
VARIABLES = {OF_PAGE.ink: "var(--ink)", OF_PAGE.faint: "var(--faint)"} | {
    colour: f"var(--s{i})" for i, colour in enumerate(OF_PAGE.series, 1)
}
SIZE = (5.6, 2.7)  # inches; text is as large as on a phone of 360 pixels it has to be
STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar is a dollar
    "font.family": "sans-serif",
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}
BREAKS: tuple[tuple[float, str], ...] = (
    *((1, "1s"), (10, "10s"), (60, "1m"), (600, "10m"), (3600, "1h"), (21_600, "6h"), (86_400, "1d")),
    *((604_800, "7d"), (2_592_000, "30d"), (31_536_000, "1y")),
)

Draw = Callable[[Axes, Palette], None]


def svg(draw: Draw, name: str, across: str, up: str) -> Markup:
    """The chart as SVG that scales with the page; `name` keeps its ids apart from those of other charts.

    across, up: what the axes show, with units.
    """
    with _figure(draw, name, OF_PAGE, SIZE, (across, up)) as figure:
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    drawn = text.getvalue()
    for colour, variable in VARIABLES.items():
        drawn = drawn.replace(colour, variable)
    drawn = drawn[drawn.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', drawn)
    assert box is not None
    shows = escape(f"{up} by {across}")
    drawn = f'<svg viewBox="{box[1]}" role="img" aria-label="{shows}">{drawn[drawn.index(">") + 1 :]}'
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"font: ([0-9.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", drawn)
    drawn = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', drawn)
    drawn = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", drawn)
    drawn = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', drawn)
    return Markup(drawn)


def titled(draw: Draw, title: str) -> Draw:
    """With a title, for where no page has a caption for it."""

    def drawn(axes: Axes, palette: Palette) -> None:
        draw(axes, palette)
        axes.set_title(title, loc="left", pad=32)

    return drawn


def words(text: str) -> Markup:
    """What stands where a chart would have nothing to show."""
    return Markup('<p class="soft">{}</p>').format(text)


def save(draw: Draw, file: Path, across: str = "", up: str = "") -> None:
    """The chart as a file of the kind that its suffix says: png, svg, pdf."""
    with _figure(draw, file.stem, OF_FILE, (9, 4.5), (across, up)) as figure:
        figure.savefig(file, dpi=160, facecolor="white")


def bars(values: Sequence[float], labels: Sequence[str], *, ticks: int = 8, colour: int = 0, log: bool = False) -> Draw:
    """A bar for each value; of the labels as many as there is room for."""

    def draw(axes: Axes, palette: Palette) -> None:
        axes.bar(range(len(values)), values, width=0.85, color=palette.series[colour])
        _label(axes, labels, ticks)
        if log:
            axes.set_yscale("log")
            axes.set_ylim(bottom=0.7)
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(values) < 50 else (1,)))
            axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(short_number))

    return draw


def stacked(parts: Mapping[str, Sequence[float]], labels: Sequence[str]) -> Draw:
    """Bars in parts, with a legend."""

    def draw(axes: Axes, palette: Palette) -> None:
        under = [0.0] * len(labels)
        for colour, (name, values) in zip(palette.series, parts.items(), strict=False):
            axes.bar(range(len(labels)), values, bottom=under, width=0.85, color=colour, label=name)
            under = [a + b for a, b in zip(under, values, strict=True)]
        axes.set_ylim(0, 1.05 * max(under, default=0.0) or 1.0)
        _label(axes, labels, 8)
        _legend(axes)

    return draw


def line(values: Sequence[float], labels: Sequence[str], limit: float | None = None) -> Draw:
    """A line, and another where a value is too high."""

    def draw(axes: Axes, palette: Palette) -> None:
        axes.plot(range(len(values)), values, color=palette.series[1], linewidth=2, marker="o", markersize=3)
        axes.fill_between(range(len(values)), values, color=palette.series[1], alpha=0.15, linewidth=0)
        if limit is not None:
            axes.axhline(limit, color=palette.series[4], linewidth=1, linestyle=(0, (4, 3)))
        if min(values, default=0) >= 0:
            axes.set_ylim(bottom=0)
        _label(axes, labels, 8)

    return draw


def durations(
    edges: Sequence[float],
    counts: Sequence[float],
    step: float,
    marks: Mapping[str, float] | None = None,
    spans: Mapping[str, tuple[float, float]] | None = None,
) -> Draw:
    """A histogram over time on a log scale; edges: the lower ones, in seconds, each `step` times the one before.

    marks, spans: times to be marked, by what they are.
    """

    def draw(axes: Axes, palette: Palette) -> None:
        axes.bar(edges, counts, width=[e * (step - 1) * 0.95 for e in edges], align="edge", color=palette.series[0])
        axes.set_xscale("log")
        low, high = min(edges), max(edges) * step
        shown = [(at, text) for at, text in BREAKS if low * 0.8 <= at <= high * 1.25]
        if len(shown) < 2:
            shown = [(at, short_time(at)) for at in (low, high)]
        axes.set_xticks([at for at, _ in shown], [text for _, text in shown])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(FuncFormatter(short_number))
        for name, span in (spans or {}).items():
            axes.axvspan(*span, color=palette.faint, zorder=0, label=name)
        for colour, (name, at) in zip(palette.series[1:], (marks or {}).items(), strict=False):
            axes.axvline(at, color=colour, linewidth=2, label=name)
        if marks or spans:
            _legend(axes)

    return draw


def short_number(value: float, _: object = None) -> str:
    """1200 is 1.2k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def short_time(seconds: float) -> str:
    """5400 is 1.5h."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.2g}{unit}"
    return f"{seconds:.2g}s"


@contextmanager
def _figure(
    draw: Draw, name: str, palette: Palette, size: tuple[float, float], labels: tuple[str, str]
) -> Iterator[Figure]:
    inks = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), palette.ink)
    faint = dict.fromkeys(("axes.edgecolor", "grid.color"), palette.faint)
    settings: dict[Any, Any] = {**STYLE, **inks, **faint, "svg.hashsalt": name}
    with mpl.rc_context(settings):
        figure = Figure(figsize=size)
        axes = figure.add_subplot()
        draw(axes, palette)
        axes.set_xlabel(labels[0] or axes.get_xlabel())
        axes.set_ylabel(labels[1])
        axes.tick_params(length=0)
        if axes.get_yscale() == "linear":
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=axes.get_ylim()[1] > 1))
        yield figure


def _label(axes: Axes, labels: Sequence[str], most: int) -> None:
    step = max(1, -(-len(labels) // most))
    at = range(0, len(labels), step)
    axes.set_xticks(list(at), [labels[i] for i in at])
    axes.grid(visible=False, axis="x")


def _legend(axes: Axes) -> None:
    axes.legend(
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        borderpad=0,
        handlelength=1,
        handletextpad=0.5,
        columnspacing=1.2,
    )
