"""advise: which gap do these events ask for?"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import floor, log2
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sessionizer.jobs.console import print_rows, stdout
from sessionizer.jobs.reporting.advice import CANDIDATES, DAY, Advice, Candidate, Found, candidates, find_gap
from sessionizer.jobs.reporting.gaps import Sample, intervals, longer, sample, without_bots
from sessionizer.lib.config import Config
from sessionizer.lib.durations import MINUTE, format_duration
from sessionizer.lib.errors import UsageError, counted
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from sessionizer.tables.source import MAKE_IT, naming
from sessionizer.tables.table_set import TableSet

KINDS = (".png", ".svg", ".pdf", ".html")
WIDEST = 40  # characters of a bar
BARS = 4  # a doubling, of the chart


def advice(spark: SparkSession, config: Config, most: int, now: int) -> Advice:
    """Advice from about `most` events of the source: all events of a share of the keys. Needs no sessions table."""
    tables = TableSet(spark, config)
    config = tables.config
    for name, table in tables.events.tables.items():
        with naming(name):
            table.require(f"check the path or name, or {MAKE_IT}")
    events, rule = tables.events.as_they_stand(), replace(Rule.of(config), gap=30 * MINUTE)
    share = min(1.0, most / max(events.count(), 1)) if rule.key else 1.0
    found = intervals(events, rule, WatermarkState(now), share).persist()
    try:
        kept, suspects = without_bots(found, rule)
        figures = sample(kept, share, suspects)
        best = find_gap(figures)
        time = config.time
        lateness = (time.allowed_lateness + time.watermark.delay) / 1e6
        shown = sorted({*map(float, CANDIDATES), best.gap})
        return Advice(best, figures, candidates(figures, longer(kept, shown), lateness))
    finally:
        found.unpersist()


def as_document(advice: Advice, config: Config) -> dict[str, Any]:
    """The advice for machines; durations as the config writes them."""
    found, figures = advice.found, advice.sample
    return {
        "gap": text(found.gap),
        "method": found.method,
        "confidence": found.confidence,
        "configured_gap": config.rule_summary()["gap"],
        "knee": text(found.knee),
        "valley": None if found.valley is None else text(found.valley),
        "trough": None if found.trough is None else [text(end) for end in found.trough],
        "mixture": asdict(found.mixture) if found.mixture else None,
        "candidates": [{**asdict(c), "gap": text(c.gap)} for c in advice.candidates],
        "hot_set": _chosen(advice).live,
        "bots": {**asdict(figures.bots), "share_of_keys": bot_share(figures)},
        "sample": {"share_of_keys": figures.share, "keys": figures.keys, "events": figures.events},
        "histogram": [{"seconds": low, "intervals": count} for low, count in coarser(figures.histogram, BARS)],
    }


def show(advice: Advice) -> None:
    """The advice for a person: the intervals as a chart, the candidates as a table, and the reasons."""
    out, chosen, found, figures = stdout(), _chosen(advice), advice.found, advice.sample
    out.print("How long until the next event of the same key (the bars double in time every two lines)\n")
    for line in _bars(figures.histogram, found.gap):
        out.print(line)
    most = max(c.sessions for c in advice.candidates)
    rows = [
        [
            f"{text(c.gap)}{' ←' if c is chosen else ''}",
            c.sessions,
            f"{c.sessions_per_key:.2f}",
            c.live,
            _bar(c.sessions, most),
        ]
        for c in advice.candidates
    ]
    out.print()
    print_rows(["gap", "sessions", "per key", "live at a time", ""], rows)
    out.print(f"\nTake [bold]gap: {text(found.gap)}[/]. {reason(found)}", markup=True)
    out.print(f"Confidence: [bold]{found.confidence}[/]. {confidence(found)}", markup=True)
    if found.valley is not None and found.trough is None:
        out.print(f"The histogram is lowest at {text(found.valley)}: a gap up to there cuts few visits in two.")
    out.print(f"The knee of the curve of sessions is at {text(found.knee)}.")
    if figures.bots.keys:
        b = figures.bots
        out.print(
            f"{bot_share(figures):.2%} of the keys look like bots ({b.fast} fast, {b.regular} regular, {b.sleepless} "
            f"sleepless) and are left out: {b.events:,} of {b.events + figures.events:,} events."
        )
    out.print(
        f"About {counted(chosen.live, 'session')} will be live at a time: what each run reads beside the new events."
    )
    if figures.share < 1:
        out.print(f"From {figures.share:.1%} of the keys; --sample takes more.")


def reason(found: Found) -> str:
    """Why this gap."""
    if found.trough is not None:
        low, high = map(text, found.trough)
        return f"Hardly an interval lies between {low} and {high}: a gap in this trough parts visits from visits."
    if (m := found.mixture) is None:
        return "The intervals are of one kind, so this is the knee: beyond it a longer gap joins ever fewer sessions."
    return (
        f"Intervals are of two kinds: within visits (half are under {text(m.within_median)}) and between them (half "
        f"are over {text(m.between_median)}). One of {text(m.split)} is as likely to be of either."
    )


def confidence(found: Found) -> str:
    """How far to trust it."""
    if found.trough is not None:
        return "Any gap within the trough makes the same sessions, but for a few."
    if (m := found.mixture) is None:
        return "There is no trough: nothing in the intervals says where a visit ends, so let the use decide."
    share = f"About {m.misplaced:.1%}" if m.misplaced >= 0.001 else "Less than 0.1%"
    wrong = f"{share} of the intervals are on the wrong side of it."
    if found.valley is None:
        return f"No trough is to be seen between the two kinds. {wrong}"
    return f"Other samples, and other shapes that fit as well, put it at {text(m.lowest)} to {text(m.highest)}. {wrong}"


def plot(advice: Advice, file: Path) -> None:
    """The intervals and the sessions by gap as a picture or a page."""
    from sessionizer.jobs.reporting import charts  # noqa: PLC0415

    found, figures = advice.found, advice.sample
    edges, counts = zip(*_every_bar(figures.histogram), strict=True)
    marks = {f"gap {text(found.gap)}": found.gap}
    spans = {} if found.trough is None else {f"trough {text(found.trough[0])} to {text(found.trough[1])}": found.trough}
    histogram = charts.durations(edges, counts, 2 ** (1 / BARS), marks, spans)
    title = "How long until the next event of the same key"
    axes = ("time until the next event (log scale)", "intervals")
    if file.suffix != ".html":
        charts.save(charts.titled(histogram, f"{title}: gap {text(found.gap)}"), file, *axes)
        return
    from sessionizer.jobs.reporting.pages import write_page  # noqa: PLC0415

    by_gap = charts.bars([c.sessions for c in advice.candidates], [text(c.gap) for c in advice.candidates])
    ends = f"from {text(edges[0])} to {text(edges[0] * 2 ** (1 / BARS))}"
    told = f"All alike, {ends}: {counted(figures.intervals, 'interval')}."
    write_page(
        "advise.html",
        file,
        advice=advice,
        gap=text(found.gap),
        reason=reason(found),
        confidence=confidence(found),
        knee=text(found.knee),
        valley=None if found.valley is None else text(found.valley),
        bots=bot_share(figures),
        chosen=_chosen(advice),
        rows=[(text(c.gap), c) for c in advice.candidates],
        title=title,
        histogram=charts.svg(histogram, "intervals", *axes) if len(edges) > 1 else charts.words(told),
        sessions=charts.svg(by_gap, "sessions-by-gap", "gap (steps, not to scale)", "sessions"),
    )


def check_plot(file: Path) -> None:
    """Raise unless a plot can be made there."""
    if file.suffix not in KINDS or not file.absolute().parent.is_dir():
        raise UsageError("--plot must name a .png, .svg, .pdf or .html file in a folder that is there", value=str(file))


def text(seconds: float) -> str:
    """A duration for the eye and for the config: 45m, 6h30m, 1d."""
    if seconds >= 60:
        whole = 60 if seconds >= 600 else 1
        seconds = round(seconds / whole) * whole
    if seconds >= DAY and seconds % DAY == 0:
        return f"{seconds / DAY:.0f}d"
    written = format_duration(round(seconds * 10) * 100_000)
    return re.sub(r"(?<=h)0m(0s)?$|(?<=m)0s$", "", written)


def bot_share(figures: Sample) -> float:
    """The share of the keys that look like bots."""
    return figures.bots.keys / max(figures.keys + figures.bots.keys, 1)


def coarser(histogram: Sequence[tuple[float, int]], bars: int) -> list[tuple[float, int]]:
    """So many bars a doubling, those of a second and more, unless all are shorter."""
    merged: dict[int, int] = defaultdict(int)
    for low, count in [bar for bar in histogram if bar[0] >= 1] or histogram:
        merged[floor(log2(low) * bars + 1e-9)] += count
    return [(2.0 ** (number / bars), merged[number]) for number in sorted(merged)]


def _every_bar(histogram: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Those of the chart, with the empty ones between them."""
    there = {round(log2(low) * BARS): count for low, count in coarser(histogram, BARS)}
    return [(2.0 ** (number / BARS), there.get(number, 0)) for number in range(min(there), max(there) + 1)]


def _chosen(advice: Advice) -> Candidate:
    return next(c for c in advice.candidates if c.gap == advice.found.gap)


def _bar(number: int, most: int) -> str:
    return "█" * round(WIDEST * number / most)


def _bars(histogram: Sequence[tuple[float, int]], gap: float) -> list[str]:
    """The histogram, two bins a doubling, with a mark where the gap lies."""
    merged = coarser(histogram, 2)
    most = max(count for _, count in merged)
    lines = [(low, f"{text(low):>9} {_bar(count, most)} {count:,}") for low, count in merged]
    above = sum(low <= gap for low, _ in lines)
    told = [line for _, line in lines]
    return [*told[:above], f"{'':>9} ┄┄┄ {text(gap)} ┄┄┄", *told[above:]]
