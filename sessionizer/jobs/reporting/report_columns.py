"""The report's part on the columns that a config computes: numbers, texts, booleans; and who comes back."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from markupsafe import Markup

from sessionizer.jobs.reporting import charts
from sessionizer.jobs.reporting.report_queries import DAYS, Engine, Row, in_calendar
from sessionizer.lib.config import Config

MOST_CHARTS, MOST_VALUES, LONGEST = 4, 8, 60
NUMBERS = re.compile(r"(tiny|small|big|huge)?int|integer|float|double|decimal(\(.*\))?")
TEXTS, BOOLEANS = ("string", "varchar"), ("boolean",)
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
WEEK = 7


@dataclass(frozen=True)
class ColumnsPart:
    """What there is to show. numbers: one row a column; shares: of booleans; tops: the first values, by column."""

    numbers: list[Row]
    shares: list[Row]
    tops: dict[str, list[Row]]
    charts: list[tuple[str, Markup]]

    def __bool__(self) -> bool:
        return bool(self.numbers or self.shares or self.tops or self.charts)


def columns_part(engine: Engine, config: Config, by_day: Sequence[Row]) -> ColumnsPart:
    """Ask for each aggregate what its type has to tell. by_day: sessions of each day, oldest first."""
    names = [name for aggregate in config.aggregates for name in aggregate.result_columns]
    kinds = _kinds(engine, names)
    numbers = [name for name, kind in kinds.items() if NUMBERS.fullmatch(kind)]
    part = ColumnsPart(
        numbers=[_number(engine, name) for name in numbers],
        shares=[_share(engine, name) for name, kind in kinds.items() if kind in BOOLEANS],
        tops={name: found for name, kind in kinds.items() if (found := _top(engine, name, kind))},
        charts=[],
    )
    day = day_axis(config)
    for name in numbers[:MOST_CHARTS]:
        part.charts.extend(_by_day(engine, name, day))
    part.charts.extend(_new_and_returning(engine, config.source.key, day))
    part.charts.extend(_by_weekday(by_day, day_axis(config, "weekday")))
    return part


def day_axis(config: Config, what: str = "day") -> str:
    """What an axis of days is called: `session_date` is as of the config's time zone."""
    return f"{what}, {config.session.time_zone or 'UTC'}"


def week_over_week(by_day: Sequence[Row]) -> str | None:
    """Sessions of the last seven days with events beside those of the seven before, if there are so many."""
    counts = {date.fromisoformat(row["day"]): row["n"] for row in by_day}
    if not counts or max(counts) - min(counts) < timedelta(days=2 * WEEK - 1):
        return None
    last = max(counts)
    now, before = (
        sum(counts.get(last - timedelta(days=d), 0) for d in range(first, first + WEEK)) for first in (0, WEEK)
    )
    return None if not before else f"{100 * (now - before) / before:+.0f} %"


def _kinds(engine: Engine, names: Sequence[str]) -> dict[str, str]:
    """The type of each column, as the engine calls it, in small letters; none where there are no rows."""
    there = {name for row in engine.ask("SELECT * FROM sessions LIMIT 1") for name in row}
    if not (names := [name for name in names if name in there]):  # of others a rebuild is still to come
        return {}
    asked = ", ".join(f"typeof({engine.column(name)}) AS {engine.column(name)}" for name in names)
    rows = engine.ask(f"SELECT {asked} FROM sessions LIMIT 1")
    return {name: str(kind).lower() for row in rows for name, kind in row.items()}


def _number(engine: Engine, name: str) -> Row:
    value = f"CAST({engine.column(name)} AS DOUBLE)"
    middle = ", ".join(
        f"percentile_cont({share}) WITHIN GROUP (ORDER BY {value}) AS {alias}"
        for share, alias in ((0.5, "median"), (0.95, "p95"))
    )
    query = f"SELECT count({value}) AS n, avg({value}) AS mean, min({value}) AS least, max({value}) AS most, {middle}"
    (row,) = engine.ask(f"{query} FROM sessions")
    return {"name": name, "n": row["n"]} | {k: _short(row[k]) for k in ("mean", "least", "median", "p95", "most")}


def _share(engine: Engine, name: str) -> Row:
    column = engine.column(name)
    counts = [f"sum(CASE WHEN {column} THEN 1 ELSE 0 END) AS yes", f"count({column}) AS n"]
    (row,) = engine.ask(f"SELECT {', '.join(counts)} FROM sessions")
    return {"name": name, "yes": row["yes"] or 0, "n": row["n"], "share": 100 * (row["yes"] or 0) / (row["n"] or 1)}


def _top(engine: Engine, name: str, kind: str) -> list[Row]:
    """The commonest values of a column of texts, or within those of lists of texts."""
    column = engine.column(name)
    if kind in ("array<string>", "varchar[]"):
        rows = f"(SELECT {engine.explode}({column}) AS value FROM sessions) AS t"
    elif kind in TEXTS:
        rows = f"(SELECT {column} AS value FROM sessions) AS t"
    else:
        return []
    counted = f"SELECT value, count(*) AS n FROM {rows} WHERE value IS NOT NULL GROUP BY value"
    found = engine.ask(f"{counted} ORDER BY n DESC, value LIMIT {MOST_VALUES}")
    most = max((row["n"] for row in found), default=1)
    return [{"value": _cut(row["value"]), "n": row["n"], "width": 100 * row["n"] / most} for row in found]


def _by_day(engine: Engine, name: str, day: str) -> Iterator[tuple[str, Markup]]:
    """Its mean a day; of a single day, or where all are alike, the table says it."""
    value = f"avg(CAST({engine.column(name)} AS DOUBLE))"
    query = f"SELECT session_date AS day, {value} AS v FROM sessions GROUP BY 1 ORDER BY 1 DESC LIMIT {DAYS}"
    rows = [row for row in in_calendar(engine.ask(query))[::-1] if isinstance(row["v"], int | float)]
    if len({row["v"] for row in rows}) > 1:
        drawn = charts.line([row["v"] for row in rows], [_day(row["day"]) for row in rows])
        shown = charts.svg(drawn, f"mean-{len(name)}-{_plain(name)}", day, _cut(name))
        yield f"{name}, mean of the sessions of a day", shown


def _new_and_returning(engine: Engine, key: Sequence[str], day: str) -> Iterator[tuple[str, Markup]]:
    rows = days_of_keys(engine, key) if key else []
    if len(rows) > 1:
        parts = {"of new keys": [row["new"] for row in rows], "of returning ones": [row["returning_"] for row in rows]}
        drawn = charts.stacked(parts, [_day(row["day"]) for row in rows])
        shown = charts.svg(drawn, "new-and-returning", day, "sessions")
        yield "Sessions a day, of new and of returning keys", shown


def days_of_keys(engine: Engine, key: Sequence[str]) -> list[Row]:
    """The last days with `new`, how many sessions are the first of their key, and `returning_`, how many are not.

    As in the view `numbered_sessions`, late sessions that are kept apart make none.
    """
    names = ", ".join(engine.column(name) for name in key)
    first = f"row_number() OVER (PARTITION BY {names} ORDER BY session_start, session_end, session_id) = 1"
    query = f"""
SELECT day, sum(is_new) AS new, count(*) - sum(is_new) AS returning_ FROM (
    SELECT session_date AS day, CASE WHEN {first} THEN 1 ELSE 0 END AS is_new FROM sessions
    WHERE NOT is_late
) AS t GROUP BY day ORDER BY day DESC LIMIT {DAYS}"""
    return in_calendar(engine.ask(query))[::-1]


def _by_weekday(by_day: Sequence[Row], weekday: str) -> Iterator[tuple[str, Markup]]:
    """The mean of each weekday, where there are weeks to compare."""
    days = [(date.fromisoformat(row["day"]), row["n"]) for row in by_day]
    if days and max(days)[0] - min(days)[0] >= timedelta(days=2 * WEEK - 1):
        span = (max(days)[0] - min(days)[0]).days + 1
        often = [sum((min(days)[0] + timedelta(days=d)).weekday() == w for d in range(span)) for w in range(WEEK)]
        means = [sum(n for day, n in days if day.weekday() == w) / often[w] for w in range(WEEK)]
        drawn = charts.bars(means, WEEKDAYS, colour=2)
        shown = charts.svg(drawn, "by-weekday", weekday, "sessions a day")
        yield "Sessions by weekday, mean of a day", shown


def _day(text: str) -> str:
    day = date.fromisoformat(text)
    return f"{day:%b} {day.day}"


def _short(value: Any) -> str:
    return "-" if value is None else charts.short_number(float(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _plain(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
