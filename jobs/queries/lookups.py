"""sessions and windows: look-ups in these tables, as they are or as they were."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.queries import sql
from lib import columns as C
from lib.errors import UsageError
from lib.reading.lookups import Instant, find_sessions, find_windows, microseconds, retained
from tables.queries.history import History
from tables.table_set import TableSet

NOT_SHOWN = (C.EXPIRES_AT, C.END_REASON, C.IS_FINAL, C.IS_LATE, C.SUPERSEDES, C.SESSION_DATE, C.RUN_ID)
SHOWN = 200
WHAT = "sessions as they were then"


@dataclass(frozen=True)
class OfKeys:
    """What any look-up may ask. Keys: text, one a key column.

    The table is read as of `version`, or as it is. `limit`: None is all rows. `retention`: rows that ended further
    behind the latest are not found, in microseconds; None: as the configuration says.
    """

    key: tuple[str, ...] = ()
    key_from: tuple[str, ...] = ()
    key_to: tuple[str, ...] = ()
    backward: bool = False
    version: int | None = None
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
    """What the command line asks for. Times: microseconds since the epoch; `at`: the table is read as of then."""

    earliest_end: int | None = None
    latest_start: int | None = None
    latest_end: int | None = None
    only_open: bool = False
    at: int | None = None


@dataclass(frozen=True)
class WindowLookUp(OfKeys):
    """The same of the sliding windows."""

    start_from: int | None = None
    start_to: int | None = None


def sessions_at(tables: TableSet, version: int | None = None, at: Instant | None = None) -> DataFrame:
    """The sessions as of a version, or as of a time (the last version that is not after it), or as they are.

    Errors: UsageError for a version that is not there yet, TableError for one that is gone.
    """
    tables.sessions.require()
    history = History(tables)
    if at is not None:
        version = history.version_at(microseconds(at))
    return tables.sessions.table.read() if version is None else history.read(version)


def look_up(tables: TableSet, asked: LookUp) -> DataFrame:
    """The rows that a look-up finds, in order, without `_state`."""
    rows, key = sessions_at(tables, asked.version, asked.at).drop(C.STATE), tables.config.source.key
    rows = asked.of(rows, C.SESSION_END, tables.config.sessions.retention)
    return find_sessions(rows, key, **asked.arguments(rows, key))


def as_documents(tables: TableSet, asked: LookUp) -> list[Any]:
    """Row objects; times as ISO-8601 UTC."""
    with History(tables).reading(WHAT):
        return sql.documents(asked.first(look_up(tables, asked)))


def show(tables: TableSet, asked: LookUp) -> None:
    """A table of the columns that a person wants to see."""
    with History(tables).reading(WHAT):
        sql.show(asked.first(look_up(tables, asked).drop(*NOT_SHOWN)), asked.limit or SHOWN)


def look_up_windows(tables: TableSet, asked: WindowLookUp) -> DataFrame:
    """The windows that a look-up finds, as above."""
    tables.windows.require()
    if asked.version is not None and asked.version > (latest := tables.windows.table.version):
        raise UsageError(f"the windows table has no such version, its latest is {latest}", value=asked.version)
    rows, key = tables.windows.table.read(asked.version).drop(C.STATE), tables.config.source.key
    sliding = tables.config.sliding
    rows = asked.of(rows, C.WINDOW_END, None if sliding is None else sliding.retention)
    return asked.first(find_windows(rows, key, **asked.arguments(rows, key)))


def show_windows(tables: TableSet, asked: WindowLookUp) -> None:
    """A table for a person."""
    sql.show(look_up_windows(tables, asked).drop(C.RUN_ID), asked.limit or SHOWN)


def _fitting(values: tuple[str, ...], sessions: DataFrame, key: Sequence[str], option: str) -> tuple[str, ...] | None:
    types = [sessions.select(C.col(name)).schema[0].dataType for name in key]
    casts = [F.lit(value).try_cast(data_type) for value, data_type in zip(values, types, strict=False)]
    fits = sessions.sparkSession.sql("SELECT 1").select(*[c.isNotNull() for c in casts]).collect()[0] if casts else ()
    for fit, value, name, data_type in zip(fits, values, key, types, strict=False):
        if not fit:
            raise UsageError(f"{option} must be of type {data_type.simpleString()}, as {name} is", value=value)
    return values or None
