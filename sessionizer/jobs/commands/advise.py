"""advise: which gap do these events ask for?"""

import re
from dataclasses import asdict, replace
from math import floor, log2
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sessionizer.jobs.console import stdout, table
from sessionizer.jobs.reporting.advice import CANDIDATES, DAY, Advice, Candidate, advise
from sessionizer.jobs.reporting.gaps import BINS_PER_DOUBLING, intervals, sample
from sessionizer.lib.config import Config
from sessionizer.lib.durations import MINUTE, format_duration
from sessionizer.lib.errors import UsageError
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from sessionizer.tables.source import MAKE_IT
from sessionizer.tables.table_set import TableSet

KINDS = (".png", ".svg", ".pdf", ".html")
WIDEST = 40  # characters of a bar


def advice(spark: SparkSession, config: Config, most: int, now: int) -> Advice:
    """Advice from about `most` events of the source: all events of a share of the keys. Needs no sessions table."""
    table = TableSet(spark, config).events.table
    table.require(f"check the path, or {MAKE_IT}")
    events, rule = table.read(), replace(Rule.of(config), gap=30 * MINUTE)
    share = min(1.0, most / max(events.count(), 1)) if rule.key else 1.0
    found = intervals(events, rule, WatermarkState(now), share).persist()
    try:
        time = config.time
        lateness = (time.allowed_lateness + time.watermark.delay) / 1e6
        return advise(sample(found, rule, share, [gap * 1_000_000 for gap in CANDIDATES]), lateness)
    finally:
        found.unpersist()


def as_document(found: Advice, config: Config) -> dict[str, Any]:
    """The advice for machines; durations as the config writes them."""
    chosen = _chosen(found)
    return {
        "gap": text(found.gap),
        "method": found.method,
        "configured_gap": config.rule_summary()["gap"],
        "knee": text(found.knee),
        "valley": None if found.valley is None else text(found.valley),
        "mixture": asdict(found.mixture) if found.mixture else None,
        "candidates": [{**asdict(c), "gap": text(c.gap)} for c in found.candidates],
        "hot_set": chosen.live,
        "bots": {**asdict(found.bots), "share_of_keys": bot_share(found)},
        "sample": {"share_of_keys": found.share, "keys": found.keys, "events": found.events},
        "histogram": [{"seconds": low, "intervals": count} for low, count in found.histogram],
    }


def show(found: Advice) -> None:
    """The advice for a person: the intervals as a chart, the candidates as a table, and the reasons."""
    out, chosen = stdout(), _chosen(found)
    out.print("How long until the next event of the same key (the bars double in time every two lines)\n")
    for line in _bars(found):
        out.print(line)
    most = max(c.sessions for c in found.candidates)
    rows = [
        [
            f"{text(c.gap)}{' ←' if c is chosen else ''}",
            c.sessions,
            f"{c.sessions_per_key:.2f}",
            c.live,
            _bar(c.sessions, most),
        ]
        for c in found.candidates
    ]
    out.print()
    out.print(table(["gap", "sessions", "per key", "live at a time", ""], rows))
    out.print(f"\nTake [bold]gap: {text(found.gap)}[/]. {reason(found)}", markup=True)
    if found.valley is not None:
        out.print(f"The histogram is lowest at {text(found.valley)}: a gap up to there cuts few visits in two.")
    out.print(f"The knee of the curve of sessions is at {text(found.knee)}.")
    if found.bots.keys:
        b = found.bots
        out.print(
            f"{bot_share(found):.2%} of the keys look like bots ({b.fast} fast, {b.regular} regular, {b.sleepless} "
            f"sleepless) and are left out: {b.events:,} of {b.events + found.events:,} events."
        )
    out.print(f"About {chosen.live:,} sessions will be live at a time: what each run reads beside the new events.")
    if found.share < 1:
        out.print(f"From {found.share:.1%} of the keys; --sample takes more.")


def reason(found: Advice) -> str:
    """Why this gap."""
    if (m := found.mixture) is None:
        return "The intervals are of one kind, so this is the knee: beyond it a longer gap joins ever fewer sessions."
    return (
        f"Intervals are of two kinds: within visits (half are under {text(m.within_median)}) and between them (half "
        f"are over {text(m.between_median)}). One of {text(m.split)} is as likely to be of either."
    )


def plot(found: Advice, file: Path) -> None:
    """The intervals and the sessions by gap as a picture or a page."""
    from sessionizer.jobs.reporting import charts  # noqa: PLC0415

    step = 2 ** (1 / BINS_PER_DOUBLING)
    shown = [(low, count) for low, count in found.histogram if low >= 1] or found.histogram
    edges, counts = zip(*shown, strict=True)
    marks = {f"gap {text(found.gap)}": found.gap, f"knee {text(found.knee)}": found.knee}
    if found.valley is not None:
        marks[f"valley {text(found.valley)}"] = found.valley
    histogram = charts.durations(edges, counts, marks, step)
    if file.suffix != ".html":
        charts.save(histogram, file)
        return
    from sessionizer.jobs.reporting.pages import write_page  # noqa: PLC0415

    sessions = charts.bars([c.sessions for c in found.candidates], [text(c.gap) for c in found.candidates])
    write_page(
        "advise.html",
        file,
        advice=found,
        gap=text(found.gap),
        reason=reason(found),
        knee=text(found.knee),
        valley=None if found.valley is None else text(found.valley),
        bots=bot_share(found),
        chosen=_chosen(found),
        rows=[(text(c.gap), c) for c in found.candidates],
        histogram=charts.svg(histogram, "intervals"),
        sessions=charts.svg(sessions, "sessions-by-gap"),
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


def bot_share(found: Advice) -> float:
    """The share of the keys that look like bots."""
    return found.bots.keys / max(found.keys + found.bots.keys, 1)


def _chosen(found: Advice) -> Candidate:
    return next(c for c in found.candidates if c.gap == found.gap)


def _bar(number: int, most: int) -> str:
    return "█" * round(WIDEST * number / most)


def _bars(found: Advice) -> list[str]:
    """The histogram, two bins a doubling, with a mark where the gap lies."""
    merged: dict[float, int] = {}
    for low, count in found.histogram:
        if low >= 1:
            pair = 2.0 ** (floor(log2(low) * 2 + 1e-9) / 2)
            merged[pair] = merged.get(pair, 0) + count
    most = max(merged.values(), default=1)
    lines, marked = [], False
    for low in sorted(merged):
        if low > found.gap and not marked:
            lines.append(f"{'':>9} ┄┄┄ {text(found.gap)} ┄┄┄")
            marked = True
        lines.append(f"{text(low):>9} {_bar(merged[low], most)} {merged[low]:,}")
    return lines
