"""What the report asks of the tables, in SQL that Spark and DuckDB both answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sessionizer.lib import columns as C
from sessionizer.lib.config import Config

DAYS, RUNS, TOP = 60, 60, 10  # shown at most
HALVES = 2  # bins a doubling of duration
DAY_LONG = 86_400

Row = dict[str, Any]


@dataclass(frozen=True)
class Engine:
    """What answers queries: rows as documents, times as ISO-8601 UTC; and how it quotes a column's name.

    has_windows: whether there are sliding windows. explode: what makes rows of a list.
    """

    name: str
    ask: Callable[[str], list[Row]]
    quote: str
    has_windows: bool = False
    explode: str = "explode"

    def column(self, name: str) -> str:
        """The column of exactly this name."""
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"


def key_of(row: Row, width: int) -> list[Any]:
    """The values of a key of so many columns, which come first: spelled as the table has them, not the config."""
    return [*row.values()][:width]


@dataclass(frozen=True)
class Found:
    """Rows of each part of the report. runs: oldest first."""

    totals: Row
    ledger: Row
    by_status: dict[str, int]
    by_day: list[Row]
    by_hour: list[Row]
    durations: list[Row]
    sizes: list[Row]
    keys: list[Row]
    runs: list[Row]
    rejected: list[Row]


def in_calendar(rows: Sequence[Row]) -> list[Row]:
    """Those whose `day` is one that Python, and so a chart, has: of the years 1 to 9999."""
    return [row for row in rows if _is_day(row["day"])]


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def ask_all(engine: Engine, config: Config) -> Found:
    """Every part, from the tables of one configuration."""
    ask = engine.ask
    (totals,), (ledger,) = ask(TOTALS), ask(LEDGER)
    return Found(
        totals=totals,
        ledger=ledger,
        by_status={row["status"]: row["n"] for row in ask(BY_STATUS)},
        by_day=in_calendar(ask(BY_DAY))[::-1],
        by_hour=ask(BY_HOUR),
        durations=ask(DURATIONS),
        sizes=ask(SIZES),
        keys=ask(_top_keys([engine.column(name) for name in config.source.key])) if config.source.key else [],
        runs=ask(f"SELECT * FROM runs ORDER BY run_seq DESC LIMIT {RUNS}")[::-1],
        rejected=ask(REJECTED),
    )


TOTALS = f"""
SELECT count(*) AS sessions, count(DISTINCT session_id) AS ids, sum(event_count) AS events,
       min(session_start) AS earliest, max(session_end) AS latest,
       avg(duration_seconds) AS mean_seconds, max(duration_seconds) AS longest, avg(event_count) AS mean_events,
       sum(CASE WHEN event_count = 1 THEN 1 ELSE 0 END) AS single,
       sum(CASE WHEN duration_seconds > {DAY_LONG} THEN 1 ELSE 0 END) AS over_a_day,
       sum(CASE WHEN session_start <= session_end AND session_end <= expires_at THEN 0 ELSE 1 END) AS disordered,
       sum(CASE WHEN is_final = (status = 'final') THEN 0 ELSE 1 END) AS inconsistent,
       sum(CASE WHEN is_late THEN 1 ELSE 0 END) AS apart,
       sum(CASE WHEN session_id IS NULL OR session_start IS NULL THEN 1 ELSE 0 END) AS without_id
FROM sessions"""
LEDGER = """
SELECT count(*) AS runs, sum(events_read) AS events_read, sum(late) AS late,
       sum(abs(events_read - (accepted + late + invalid + duplicates))) AS unaccounted
FROM runs"""
BY_STATUS = "SELECT status, count(*) AS n FROM sessions GROUP BY status"
BY_HOUR = "SELECT hour(session_start) AS h, count(*) AS n FROM sessions GROUP BY 1 ORDER BY 1"
BY_DAY = f"""
SELECT session_date AS day, count(*) AS n, sum(event_count) AS events
FROM sessions GROUP BY session_date ORDER BY session_date DESC LIMIT {DAYS}"""
DURATIONS = f"""
SELECT CAST(floor(log2(duration_seconds) * {HALVES}) AS INT) AS bin, count(*) AS n
FROM sessions WHERE duration_seconds >= 1 GROUP BY 1 ORDER BY 1"""
SIZES = """
SELECT CAST(floor(log2(event_count)) AS INT) AS bin, count(*) AS n
FROM sessions WHERE event_count > 0 GROUP BY 1 ORDER BY 1"""
REJECTED = """
SELECT reason, count(*) AS n, min(event_time) AS earliest, max(event_time) AS latest
FROM rejected_events GROUP BY reason ORDER BY n DESC, reason"""


def _top_keys(key: Sequence[str]) -> str:
    names, ordered = ", ".join(key), ", ".join(f"{name} NULLS FIRST" for name in key)
    return f"""
SELECT {names}, count(*) AS __sessions, sum({C.EVENT_COUNT}) AS __events, max({C.SESSION_END}) AS __latest
FROM sessions GROUP BY {names} ORDER BY __events DESC, {ordered} LIMIT {TOP}"""
