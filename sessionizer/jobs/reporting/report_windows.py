"""What the report says of sliding windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sessionizer.jobs.reporting.report_queries import TOP, Engine, Row, key_of
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config

FIGURES = """
SELECT count(*) AS windows, sum(CASE WHEN is_final THEN 0 ELSE 1 END) AS live, avg(event_count) AS mean_events,
       max(event_count) AS most_events,
       sum(CASE WHEN last_event_time < window_start OR last_event_time > window_end THEN 1 ELSE 0 END) AS misplaced
FROM windows"""
LEDGER = """
SELECT count(*) AS runs, sum(events_read) AS events_read, sum(late) AS late,
       sum(CASE WHEN events_read <> accepted + late + invalid + duplicates THEN 1 ELSE 0 END) AS unaccounted
FROM window_runs"""
REJECTED = """
SELECT reason, count(*) AS n FROM rejected_window_events GROUP BY reason ORDER BY n DESC, reason"""


@dataclass(frozen=True)
class WindowsPart:
    """tiles: figures by name. busiest: the windows of the most events. broken: rows that break a rule, by the rule."""

    tiles: Sequence[tuple[str, str]]
    busiest: Sequence[dict[str, Any]]
    runs: Sequence[Row]
    rejected: Sequence[Row]
    broken: dict[str, int]


def windows_part(engine: Engine, config: Config) -> WindowsPart | None:
    """From the tables of one configuration; None where it has no windows, or none have been made."""
    if not engine.has_windows:
        return None
    (figures,), (ledger,) = engine.ask(FIGURES), engine.ask(LEDGER)
    key = [engine.column(name) for name in config.source.key]
    twice = engine.ask(_twice(key))[0]["n"]
    return WindowsPart(
        tiles=[
            ("windows", f"{figures['windows']:,}"),
            ("live now", f"{figures['live'] or 0:,}"),
            ("events a window", f"{figures['mean_events'] or 0:.1f}"),
            ("most events", f"{figures['most_events'] or 0:,}"),
            ("late events", f"{ledger['late'] or 0:,}"),
            ("runs", f"{ledger['runs']:,}"),
        ],
        busiest=[_told(row, len(key)) for row in engine.ask(_busiest(key))],
        runs=engine.ask(f"SELECT * FROM window_runs ORDER BY run_seq DESC LIMIT {TOP}"),
        rejected=engine.ask(REJECTED),
        broken={
            "each window is there once": twice,
            "the last event of a window lies in it": figures["misplaced"] or 0,
            "every run of windows accounts for all the events it read": ledger["unaccounted"] or 0,
        },
    )


def _told(row: Row, width: int) -> dict[str, Any]:
    values = ["null" if value is None else value for value in key_of(row, width)]
    return {"values": values, "start": str(row["__start"])[:19].replace("T", " "), "events": row["__events"]}


def _busiest(key: Sequence[str]) -> str:
    names, ordered = "".join(f"{name}, " for name in key), "".join(f"{name} NULLS FIRST, " for name in key)
    return f"""
SELECT {names}{C.WINDOW_START} AS __start, {C.EVENT_COUNT} AS __events
FROM windows ORDER BY __events DESC, {ordered}__start LIMIT {TOP}"""


def _twice(key: Sequence[str]) -> str:
    names = ", ".join([*key, C.WINDOW_START])
    return f"SELECT count(*) AS n FROM (SELECT {names} FROM windows GROUP BY {names} HAVING count(*) > 1) AS twice"
