"""Rows of the tables that a span touches, counted by DuckDB; and the run that would be finished first."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import types as T

from sessionizer.jobs.queries import sql_duckdb
from sessionizer.jobs.queries.lookups_duckdb import literal
from sessionizer.jobs.run.kinds import RUNS, Ruled, fence
from sessionizer.lib import columns as C
from sessionizer.lib.windows.sessions.lifecycle import CLOSED, FINAL, OPEN
from sessionizer.tables.delta import Commit
from sessionizer.tables.position import Position
from sessionizer.tables.queries.duckdb import quoted
from sessionizer.tables.queries.local import LocalTableSet

EDGES = {"sessions": (C.SESSION_START, C.SESSION_END), "windows": (C.WINDOW_START, C.WINDOW_END)}
REACHES = {"sessions": C.EXPIRES_AT, "windows": C.WINDOW_END}
STATUSES = {"sessions": (OPEN, CLOSED, FINAL), "windows": (OPEN, FINAL)}


def by_status(tables: LocalTableSet, of: Ruled, conditions: Sequence[str]) -> dict[str, int]:
    """How many rows of the table there are for which all of this holds, by their status. Errors: NeedsSpark."""
    status = C.STATUS if of.name == "sessions" else f"'{OPEN}'"
    text = f"SELECT CASE WHEN {C.IS_FINAL} THEN '{FINAL}' ELSE {status} END, count(*) FROM {of.name}"
    found = dict(_rows(tables, f"{text}{_where(conditions)} GROUP BY 1"))
    return {name: found.get(name, 0) for name in STATUSES[of.name]}


def stretches(tables: LocalTableSet, of: Ruled, low: int, high: int, unit: int) -> dict[int, int]:
    """How many rows and rejected events come in by each stretch of [low, high), so long from `low` on.

    Rows come in by their start, or by the first stretch where they reach into it, as do windows of events that stay
    though they are rejected. Errors: NeedsSpark.
    """
    start, reach, us = EDGES[of.name][0], REACHES[of.name], f"epoch_us({C.EVENT_TIME})"
    found = [
        (of.name, f"epoch_us({start})", [f"epoch_us({start}) < {high}", f"epoch_us({reach}) >= {low}"]),
        (_rejected_events(of), us, [f"{us} >= {low}", f"{us} < {high}"]),
    ]
    if of.name == "windows":
        unit_of, since = of.rule.time_unit, low - of.rule.reach_back
        whole = f"{us} - ({us} % {unit_of} + {unit_of}) % {unit_of}"
        found += [(_rejected_events(of), whole, [f"{C.KEPT} = 'in'", f"{whole} >= {since}", f"{whole} < {high}"])]
    each = (f"SELECT {time} AS us FROM {name}{_where(conditions)}" for name, time, conditions in found)
    place = f"(greatest(us, {low}) - {low}) // {unit}"
    text = f"SELECT {place} AS place, count(*) AS number FROM ({' UNION ALL '.join(each)}) AS found GROUP BY 1"
    return dict(_rows(tables, text))


def outermost(tables: LocalTableSet, of: Ruled, low: int, high: int) -> tuple[int, int]:
    """[low, high) (microseconds) and as far beyond as rows reach that touch it, both inclusive. Errors: NeedsSpark."""
    start, reach = EDGES[of.name][0], REACHES[of.name]
    conditions = _where([f"epoch_us({start}) < {high}", f"epoch_us({reach}) >= {low}"])
    text = f"SELECT min(epoch_us({start})), max(epoch_us({reach})) FROM {of.name}{conditions}"
    ((first, last),) = _rows(tables, text)
    return (low, high) if first is None else (min(low, first), max(high, last))


def touching(of: Ruled, low: int | None, high: int | None) -> list[str]:
    """The conditions on rows that end at or after `low` and start before `high` (microseconds)."""
    start, end = EDGES[of.name]
    later = [] if low is None else [f"epoch_us({end}) >= {low}"]
    return later if high is None else [*later, f"epoch_us({start}) < {high}"]


def late_within(tables: LocalTableSet, of: Ruled, low: int, high: int, keys: Sequence[str]) -> int:
    """How many rejected events of a span [low, high) are late, by the conditions on their keys. Errors: NeedsSpark."""
    time = [f"{C.REASON} = 'late'", f"epoch_us({C.EVENT_TIME}) >= {low}", f"epoch_us({C.EVENT_TIME}) < {high}"]
    ((number,),) = _rows(tables, f"SELECT count(*) FROM {_rejected_events(of)}{_where([*time, *keys])}")
    return int(number)


def _rejected_events(of: Ruled) -> str:
    return "rejected_events" if of.name == "sessions" else "rejected_window_events"


def of_any(keys: Sequence[str] | None, columns: T.StructType) -> list[str]:
    """The condition that a row is of one of these keys (JSON objects of the key columns); None: of any.

    Errors: UsageError for a value that is not of its column's type; NeedsSpark for types whose texts only it reads.
    """
    if keys is None:
        return []
    return ["(" + " OR ".join(f"({' AND '.join(_of_key(json.loads(key), columns))})" for key in keys) + ")"]


def unfinished(tables: LocalTableSet, of: Ruled, position: Position) -> str | None:
    """What would be repaired first: a run that was cut off behind its commit, or those that a RESTORE has undone.

    Whether a command has done the latter, which has made no run, no log tells.
    """
    home, runs = tables.home(of.name)
    if (done := position.manifest) is None:
        return None
    restored = position.restored
    if runs.has_fence(Commit(fence(home.id, RUNS), done.run_seq if restored is None else restored)):
        return None
    if restored is None:
        return f"run {done.run_id} was cut off after its commit: it is finished first"
    return f"version {restored} is a RESTORE: what is there still of runs after run {done.run_id} is removed first"


def _of_key(key: Mapping[str, Any], columns: T.StructType) -> list[str]:
    types = {field.name.lower(): field.dataType for field in columns.fields}
    return [
        f"{quoted(name)} IS NULL"
        if value is None
        else f"{quoted(name)} = {literal(str(value), types.get(name.lower(), T.NullType()), name, 'key')}"
        for name, value in key.items()
    ]


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _rows(tables: LocalTableSet, text: str) -> list[tuple[Any, ...]]:
    return list(sql_duckdb.rows(sql_duckdb.checked_query(tables.config, text)))
