"""Draws docs/sliding.svg: the windows that Spark's `window`, sessions and sliding windows make of five events.

`python -m bench.sliding_picture [FILE]` computes them and draws what came out; FILE may end with .svg or .png.
It needs matplotlib: `pip install -c constraints.txt '.[report]'`.
"""

import sys
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.jobs.spark import spark_session
from sessionizer.lib import columns as C
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from sessionizer.lib.windows.sliding.rule import SlidingRule
from sessionizer.lib.windows.windows import Stored
from tests.frames import sessionize, slide

MINUTE = 60_000_000
TEN_O_CLOCK = 1_760_004_000_000_000  # µs; 10:00 UTC of a day
EVENTS = (4.0, 6.0, 11.0, 13.5, 29.0)  # minutes past ten
CLOCK = WatermarkState(now=2**60)


@dataclass(frozen=True)
class Bar:
    """A window in minutes past ten, and how many events it holds."""

    start: float
    end: float
    events: int


def main() -> None:
    file = sys.argv[1] if len(sys.argv) > 1 else "docs/sliding.svg"
    spark = spark_session()
    rows = [("ann", TEN_O_CLOCK + int(m * MINUTE)) for m in EVENTS]
    events = spark.createDataFrame(rows, "user STRING, us BIGINT").select("user", F.timestamp_micros("us").alias("at"))
    draw(
        {
            "hopping\nwindow('10 minutes', '5 minutes')": (hopping(events), "#8a8f98", False),
            "session\ngap 10m": (sessions(events), "#37b24d", True),
            "sliding\ntime_difference 10m": (sliding(events), "#4a7fd8", True),
        },
        file,
    )
    spark.stop()


def hopping(events: DataFrame) -> list[Bar]:
    """Spark's own, half-open."""
    window = F.window("at", "10 minutes", "5 minutes")
    return bars(events.groupBy(window).agg(F.count(F.lit(1)).alias("n")), F.col("window.start"), F.col("window.end"))


def sessions(events: DataFrame) -> list[Bar]:
    """Sessions of the product."""
    rule = Rule(key=("user",), gap=10 * MINUTE, event_time="at")
    made = sessionize(events, None, rule, CLOCK).changes.withColumnRenamed(C.EVENT_COUNT, "n")
    return bars(made, C.col(C.SESSION_START), C.col(C.SESSION_END))


def sliding(events: DataFrame) -> list[Bar]:
    """Sliding windows of the product."""
    rule = SlidingRule(Rule(key=("user",), gap=10 * MINUTE, event_time="at", time_unit=1_000), 10 * MINUTE)
    made = slide(events, Stored(), rule, CLOCK).changes
    return bars(made.withColumnRenamed(C.EVENT_COUNT, "n"), C.col(C.WINDOW_START), C.col(C.WINDOW_END))


def bars(windows: DataFrame, start: Column, end: Column) -> list[Bar]:
    edges = [((F.unix_micros(edge) - TEN_O_CLOCK) / MINUTE).alias(name) for edge, name in ((start, "s"), (end, "e"))]
    return [Bar(row["s"], row["e"], row["n"]) for row in windows.select(*edges, "n").orderBy("s").collect()]


def draw(panels: dict[str, tuple[list[Bar], str, bool]], file: str) -> None:
    """One panel a kind of window, a line a window, and the events across all of them."""
    mpl.rcParams.update({"svg.hashsalt": "sessionizer", "font.family": "DejaVu Sans", "font.size": 9})
    heights = [len(found) + 1.2 for found, _, _ in panels.values()]
    figure, axes = plt.subplots(
        len(panels), 1, sharex=True, figsize=(9, 0.26 * sum(heights) + 0.8), height_ratios=heights, facecolor="white"
    )
    for axis, (title, (found, colour, closed)) in zip(axes, panels.items(), strict=True):
        panel(axis, title, found, colour, closed=closed)
    axes[-1].set_xticks(range(-5, 45, 5), [f"{10 + m // 60}:{m % 60:02}" for m in range(-5, 45, 5)])
    axes[0].set_title("the same five events; the number is how many each window holds", loc="left", fontsize=9)
    figure.tight_layout()
    figure.savefig(file, dpi=110, metadata={"Date": None} if file.endswith(".svg") else None)


def panel(axis: Axes, title: str, found: list[Bar], colour: str, *, closed: bool) -> None:
    most = max(bar.events for bar in found)
    for minute in EVENTS:
        axis.axvline(minute, color="#e03131", linewidth=1, alpha=0.55, zorder=1)
    for line, bar in enumerate(found):
        strong = bar.events == most
        axis.hlines(line, bar.start, bar.end, color=colour, linewidth=5 if strong else 3, zorder=2)
        ends: dict[str, Any] = {
            "marker": "|",
            "color": colour,
            "markersize": 9,
            "markeredgewidth": 2,
            "linestyle": "",
            "zorder": 3,
        }
        axis.plot([bar.start, bar.end] if closed else [bar.start], [line] * (2 if closed else 1), **ends)
        axis.text(bar.end + 0.6, line, f"{bar.events}", va="center", fontweight="bold" if strong else "normal")
    axis.set_ylim(len(found) - 0.2, -1)
    axis.set_xlim(-8, 42)
    axis.set_yticks([])
    axis.set_ylabel(title, rotation=0, ha="right", va="center")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="x", length=0)


if __name__ == "__main__":
    main()
