"""report: sessions, and sliding windows, on one page, for people who were not there."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup
from pyspark.sql import SparkSession

from sessionizer.jobs.console import iso
from sessionizer.jobs.masking import masked
from sessionizer.jobs.queries import sql, sql_duckdb
from sessionizer.jobs.queries.lookups import LookUp
from sessionizer.jobs.reporting import charts
from sessionizer.jobs.reporting.pages import write_page
from sessionizer.jobs.reporting.report_columns import columns_part, day_axis, week_over_week
from sessionizer.jobs.reporting.report_queries import DAY_LONG, HALVES, Engine, Found, Row, ask_all, key_of
from sessionizer.jobs.reporting.report_windows import WindowsPart, windows_part
from sessionizer.jobs.reporting.run_output import MUCH_LATE
from sessionizer.jobs.reporting.timeline import of_key, timeline
from sessionizer.lib import __version__
from sessionizer.lib.config import Config
from sessionizer.lib.errors import UsageError, counted, without_passwords
from sessionizer.tables.queries.local import LocalTableSet
from sessionizer.tables.table_set import TableSet

TIMELINES, MOST_BARS = 5, 20  # of keys, and sessions of each


@dataclass(frozen=True)
class Check:
    """A rule that the tables keep or break, and the rows that break it."""

    rule: str
    broken: int
    fatal: bool = True


def by_duckdb(config: Config) -> Engine:
    """Answers without Spark. Errors: NeedsSpark where the tables do not lie on paths or use what only Spark reads."""
    tables = LocalTableSet(config)
    tables.require()
    known = tables.existing()
    for table in known.values():
        table.dataset()

    def ask(query: str) -> list[Row]:
        return sql_duckdb.documents(sql_duckdb.checked_query(config, query))

    return Engine("DuckDB", ask, '"', has_windows="windows" in known, explode="unnest")


def by_spark(spark: SparkSession, config: Config) -> Engine:
    """Answers by Spark: any table."""
    tables = TableSet(spark, config)
    tables.require()

    def ask(query: str) -> list[Row]:
        return sql.documents(sql.query_frame(spark, config, query))

    return Engine("Spark", ask, "`", has_windows=config.sliding is not None and tables.windows.table.exists())


def write_report(engine: Engine, config: Config, file: Path, now_us: int, title: str | None = None) -> dict[str, Any]:
    """Write the page; returns the figures at its top. title: its heading; default: the name of the sessions table."""
    found, windows = ask_all(engine, config), windows_part(engine, config)
    checks = _checks(found, windows)
    tiles = _tiles(found)
    write_page(
        "report.html",
        file,
        title=(title or "").strip() or _name(config.sessions.table),
        table=without_passwords(config.sessions.table),
        made=str(iso(now_us))[:16].replace("T", " "),
        version=__version__,
        engine=engine.name,
        totals=found.totals,
        tiles=tiles,
        statuses=_statuses(found),
        charts=list(_charts(found, day_axis(config))),
        key_names=list(config.source.key),
        keys=_keys(found, config.source.key),
        phases=_phases(found),
        runs=found.runs[::-1][:10],
        rejected=found.rejected,
        windows=windows,
        columns=columns_part(engine, config, found.by_day),
        timelines=list(_timelines(engine, config, found)),
        checks=checks,
        config=yaml.safe_dump(masked(config), sort_keys=False, allow_unicode=True),
    )
    return {"report": str(file), **dict(tiles), "broken_rules": [c.rule for c in checks if c.broken and c.fatal]}


def _name(table: str) -> str:
    return Path(table).name if "/" in table else table


def _timelines(engine: Engine, config: Config, found: Found) -> Iterator[tuple[str, Any]]:
    """Of the busiest keys, where this machine has the tables."""
    if engine.name != "DuckDB":
        return
    for n, row in enumerate(found.keys[:TIMELINES]):
        values = key_of(row, len(config.source.key))
        if any(value is None for value in values):
            continue
        with suppress(UsageError):
            drawn = timeline(config, LookUp(key=tuple(map(str, values)), backward=True, limit=MOST_BARS))
            yield drawn.title, charts.svg(partial(of_key, drawn), f"key-{n}", "time, UTC", "sessions and events")


def _tiles(found: Found) -> list[tuple[str, str]]:
    t, read, late = found.totals, found.ledger["events_read"] or 0, found.ledger["late"] or 0
    return [
        ("sessions", f"{t['sessions']:,}"),
        ("events in them", f"{t['events'] or 0:,}"),
        ("live now", f"{sum(n for name, n in found.by_status.items() if name != 'final'):,}"),
        ("mean duration", _duration(t["mean_seconds"])),
        ("events a session", f"{t['mean_events'] or 0:.1f}"),
        ("of one event", _percent(t["single"], t["sessions"])),
        ("late events", _percent(late, read)),
        ("runs", f"{found.ledger['runs']:,}"),
        *([("sessions, week over week", change)] if (change := week_over_week(found.by_day)) else []),
    ]


def _statuses(found: Found) -> list[tuple[str, int, float, str]]:
    total = sum(found.by_status.values()) or 1
    colours = {"open": "var(--s3)", "closed": "var(--s2)", "final": "var(--s1)"}
    return [
        (name, n, 100 * n / total, colour) for name, colour in colours.items() if (n := found.by_status.get(name, 0))
    ]


def _charts(found: Found, day: str) -> Any:
    """Caption and drawing of each chart that there is something to show for. day: what an axis of days is called."""
    if found.by_day:
        days, counts = _every_day(found.by_day)
        told = f"One day so far, {days[0]}: {_sessions(counts[0])}."
        a_day = charts.bars(counts, days, ticks=6)
        shown = charts.svg(a_day, "sessions-a-day", day, "sessions") if len(days) > 1 else charts.words(told)
        yield "Sessions a day", shown
    if found.by_hour:
        hours = {row["h"]: row["n"] for row in found.by_hour}
        hourly = charts.bars([hours.get(h, 0) for h in range(24)], [f"{h:02}" for h in range(24)], colour=2)
        told = f"One hour so far, {min(hours):02}:00: {_sessions(sum(hours.values()))}."
        by_hour = charts.svg(hourly, "sessions-by-hour", "hour, UTC", "sessions")
        yield "Sessions by hour of day, UTC", by_hour if len(hours) > 1 else charts.words(told)
    if found.totals["sessions"]:
        yield "Duration of sessions, those of a second and more", _durations(found.durations)
    if found.sizes:
        yield "Events a session, from … up to twice as many", _sizes(found.sizes)
    if found.runs:
        yield from _charts_of_runs(found.runs)


def _durations(rows: list[Row]) -> Markup:
    bins = {row["bin"]: row["n"] for row in rows}
    if not bins:
        return charts.words("No session lasts a second: each has one event, or events at one time.")
    edges = [2 ** (b / HALVES) for b in range(min(bins), max(bins) + 1)]
    if len(bins) == 1:
        low, high = (charts.short_time(edges[0] * step) for step in (1, 2 ** (1 / HALVES)))
        return charts.words(f"All alike, from {low} to {high}: {_sessions(sum(bins.values()))}.")
    drawn = charts.durations(edges, [bins.get(b, 0) for b in range(min(bins), max(bins) + 1)], 2 ** (1 / HALVES))
    return charts.svg(drawn, "durations", "duration (log scale)", "sessions")


def _sizes(rows: list[Row]) -> Markup:
    bins = {row["bin"]: row["n"] for row in rows}
    if len(bins) == 1:
        (b,) = bins
        told = "one event" if b == 0 else f"{2**b:,} to {2 ** (b + 1) - 1:,} events"
        return charts.words(f"All alike, of {told}: {_sessions(bins[b])}.")
    labels = [charts.short_number(2**b) for b in range(max(bins) + 1)]
    drawn = charts.bars([bins.get(b, 0) for b in range(max(bins) + 1)], labels, colour=3, log=True)
    return charts.svg(drawn, "sizes", "events (log scale)", "sessions (log scale)")


def _sessions(number: int) -> str:
    return counted(number, "session")


def _charts_of_runs(runs: list[Row]) -> Any:
    labels = [str(row["run_seq"]) for row in runs]
    if len(runs) == 1:
        (run,) = runs
        yield "Runs", charts.words(f"One run so far: {run['late']:,} of {run['events_read']:,} events late.")
        return
    late = [100 * row["late"] / row["events_read"] if row["events_read"] else 0.0 for row in runs]
    drawn = charts.line(late, labels, 100 * MUCH_LATE if max(late) > 50 * MUCH_LATE else None)
    none = charts.words("No event was late in any of these runs.")
    shown = charts.svg(drawn, "late-share", "run", "late events, %") if any(late) else none
    yield "Late events of each run, %", shown
    timed = [(label, row["seconds"]) for label, row in zip(labels, runs, strict=True) if row["seconds"]]
    if timed:
        names = sorted({name for _, seconds in timed for name in seconds} - {"total"}, key=_rank)
        parts = {name: [seconds.get(name, 0.0) for _, seconds in timed] for name in names}
        drawn = charts.stacked(parts, [label for label, _ in timed])
        yield "Seconds of each run", charts.svg(drawn, "run-seconds", "run", "seconds")


def _every_day(rows: list[Row]) -> tuple[list[str], list[int]]:
    """The days with the empty ones between them; of a history with long holes, only the days there are."""
    counts = {date.fromisoformat(row["day"]): row["n"] for row in rows}
    first, last = min(counts), max(counts)
    span = (last - first).days + 1
    days = [first + timedelta(days=i) for i in range(span)] if span <= 3 * len(rows) + 30 else sorted(counts)
    return [f"{day:%b} {day.day}" for day in days], [counts.get(day, 0) for day in days]


def _keys(found: Found, key: tuple[str, ...]) -> list[dict[str, Any]]:
    most = max((row["__events"] for row in found.keys), default=1)
    return [
        {
            "values": ["null" if value is None else value for value in key_of(row, len(key))],
            "sessions": row["__sessions"],
            "events": row["__events"],
            "latest": str(row["__latest"])[:16].replace("T", " "),
            "width": 100 * row["__events"] / most,
        }
        for row in found.keys
    ]


def _phases(found: Found) -> list[dict[str, Any]]:
    """Phases by the time they took in all runs here, the slowest first."""
    by_phase: dict[str, list[float]] = defaultdict(list)
    for row in found.runs:
        for name, seconds in (row["seconds"] or {}).items():
            if name != "total":
                by_phase[name].append(seconds)
    whole = sum(map(sum, by_phase.values())) or 1.0
    told = [
        {"name": n, "mean": sum(s) / len(s), "longest": max(s), "share": 100 * sum(s) / whole}
        for n, s in by_phase.items()
    ]
    return sorted(told, key=lambda phase: -phase["share"])


def _checks(found: Found, windows: WindowsPart | None) -> list[Check]:
    t, read, late = found.totals, found.ledger["events_read"] or 0, found.ledger["late"] or 0
    return [
        Check("every session has an id and a start", t["without_id"] or 0),
        Check("session ids are unique", t["sessions"] - t["ids"] - (t["without_id"] or 0)),
        Check("start ≤ end ≤ expires_at", t["disordered"] or 0),
        Check("final rows, and no others, are in the final partition", t["inconsistent"] or 0),
        Check("every run accounts for all the events it read", found.ledger["unaccounted"] or 0),
        *[Check(rule, broken) for rule, broken in (windows.broken if windows else {}).items()],
        Check("sessions of at most a day", t["over_a_day"] or 0, fatal=False),
        Check(f"at most {MUCH_LATE:.0%} of events late", late if read and late / read > MUCH_LATE else 0, fatal=False),
    ]


def _percent(part: int | None, whole: int | None) -> str:
    share = 100 * (part or 0) / whole if whole else 0.0
    return f"{share:.2f} %" if 0 < share < 1 else f"{share:.0f} %"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for size, unit in ((DAY_LONG, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _rank(phase: str) -> int:
    order = ("plan", "sessionize", "commit", "side_tables")
    return order.index(phase) if phase in order else len(order)
