"""sessions and windows: look-ups in these tables, as they are or as they were."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionizer.jobs.queries import sql
from sessionizer.lib import columns as C
from sessionizer.lib.canonical import from_text
from sessionizer.lib.errors import UsageError
from sessionizer.lib.reading.lookups import Instant, find_sessions, find_windows, microseconds, require_key, retained
from sessionizer.lib.windows.sliding.rule import sliding_of
from sessionizer.tables.queries.history import History
from sessionizer.tables.table_set import TableSet

NOT_SHOWN = {
    "sessions": (C.EXPIRES_AT, C.END_REASON, C.IS_FINAL, C.IS_LATE, C.SUPERSEDES, C.SESSION_DATE, C.RUN_ID),
    "windows": (C.RUN_ID,),
}
SHOWN = 200


@dataclass(frozen=True)
class OfKeys:
    """What any look-up may ask. Keys: text, one a key column.

    The table is read as of `version`, or as of the time `at` (microseconds), or as it is. `limit`: None is all rows.
    `retention`: rows that ended further behind the latest are not found, in microseconds; None: as the configuration
    says.
    """

    key: tuple[str, ...] = ()
    key_from: tuple[str, ...] = ()
    key_to: tuple[str, ...] = ()
    backward: bool = False
    version: int | None = None
    at: int | None = None
    limit: int | None = None
    retention: int | None = None

    def arguments(self, rows: DataFrame, key: Sequence[str]) -> dict[str, Any]:
        """For `find_sessions` or `find_windows`. Errors: UsageError for a value that is not of its column's type."""
        others = ("version", "at", "limit", "retention")
        given = {name: value for name, value in vars(self).items() if name not in others}
        keys = ("key", "key_from", "key_to")
        return given | {name: _fitting(given[name], rows, key, f"--{name.replace('_', '-')}") for name in keys}

    def of(self, rows: DataFrame, end: str, retention: int | None) -> DataFrame:
        """The rows that are found at all, of a table of which the configuration says this retention."""
        longest = retention if self.retention is None else self.retention
        return rows if longest is None else retained(rows, end, longest)

    def first(self, found: DataFrame) -> DataFrame:
        """As many rows as were asked for."""
        return found if self.limit is None else found.limit(self.limit)


@dataclass(frozen=True)
class LookUp(OfKeys):
    """What the command line asks of sessions. Times: microseconds since the epoch."""

    earliest_end: int | None = None
    latest_start: int | None = None
    latest_end: int | None = None
    only_open: bool = False


@dataclass(frozen=True)
class WindowLookUp(OfKeys):
    """The same of the sliding windows."""

    start_from: int | None = None
    start_to: int | None = None


def sessions_at(tables: TableSet, version: int | None = None, at: Instant | None = None) -> DataFrame:
    """The sessions as of a version, or as of a time, or as they are (`History.as_of`)."""
    return _of_sessions(tables).as_of(version, None if at is None else microseconds(at))


def windows_at(tables: TableSet, version: int | None = None, at: Instant | None = None) -> DataFrame:
    """The same of the sliding windows."""
    return _of_windows(tables).as_of(version, None if at is None else microseconds(at))


def look_up(tables: TableSet, asked: LookUp | WindowLookUp) -> DataFrame:
    """The rows that a look-up finds, in order, without `_state`."""
    key = tables.config.source.key
    if isinstance(asked, LookUp):
        rows = sessions_at(tables, asked.version, asked.at).drop(C.STATE)
        require_key(rows.columns, key, "sessions")
        rows = asked.of(rows, C.SESSION_END, tables.config.sessions.retention)
        return find_sessions(rows, key, **asked.arguments(rows, key))
    rows = windows_at(tables, asked.version, asked.at).drop(C.STATE)
    require_key(rows.columns, key, "windows")
    rows = asked.of(rows, C.WINDOW_END, sliding_of(tables.config).retention)
    return find_windows(rows, key, **asked.arguments(rows, key))


def as_documents(tables: TableSet, asked: LookUp | WindowLookUp) -> list[Any]:
    """Row objects; times as ISO-8601 UTC."""
    with _reading(tables, asked):
        return sql.documents(asked.first(look_up(tables, asked)))


def show(tables: TableSet, asked: LookUp | WindowLookUp, *, wide: bool = False) -> None:
    """A table of the columns that a person wants to see."""
    hidden = NOT_SHOWN["sessions" if isinstance(asked, LookUp) else "windows"]
    with _reading(tables, asked):
        sql.show(asked.first(look_up(tables, asked).drop(*hidden)), asked.limit or SHOWN, wide=wide)


def _of_sessions(tables: TableSet) -> History:
    return History(tables.sessions, tables.runs)


def _of_windows(tables: TableSet) -> History:
    return History(tables.windows, tables.window_runs)


def _reading(tables: TableSet, asked: LookUp | WindowLookUp) -> AbstractContextManager[None]:
    history = _of_sessions(tables) if isinstance(asked, LookUp) else _of_windows(tables)
    return history.reading(f"{history.name} as they were then")


def _fitting(values: tuple[str, ...], sessions: DataFrame, key: Sequence[str], option: str) -> tuple[str, ...] | None:
    types = [sessions.select(C.col(name)).schema[0].dataType for name in key]
    casts = [from_text(F.lit(value), data_type) for value, data_type in zip(values, types, strict=False)]
    fits = sessions.sparkSession.sql("SELECT 1").select(*[c.isNotNull() for c in casts]).collect()[0] if casts else ()
    for fit, value, name, data_type in zip(fits, values, key, types, strict=False):
        if not fit:
            raise UsageError(f"{option} must be of type {data_type.simpleString()}, as {name} is", value=value)
    return values or None
