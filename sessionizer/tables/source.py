"""What must hold of the source, whoever reads it, and what helps where it does not."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from sessionizer.lib.config import Config, EventSource, field_of
from sessionizer.lib.config.key import parts_of
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import SessionizerError, SourceError
from sessionizer.lib.expressions import column_problems
from sessionizer.tables.delta import CHANGE_FEED, Table
from sessionizer.tables.manifest import Consumed

if TYPE_CHECKING:
    from sessionizer.tables.queries.local import LocalTable

MAKE_IT = "make it first, for example from files: `sessionizer ingest FILE… --format csv`"
ANEW = (
    "`sessionizer rebuild` makes all sessions anew from the source as it stands, `rebuild --windows` all sliding "
    "windows (before a first run set source.start: earliest)"
)


def named_by(config: Config, tables: "Mapping[str, Table] | Mapping[str, LocalTable]") -> Config:
    """The config of this source: a key column that is called `user.id` as a whole comes before a field of that name.

    Of several sources, whose keys are to have the same names, it is called by its last part all the same.
    """
    is_open = any(isinstance(entry, str) and parts_of(entry) for entry in config.source.keys)
    if config.sources or not is_open or not tables[""].exists():
        return config
    return config.over(tables[""].schema.names)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors within say which of several sources they are about; the only one has no name."""
    try:
        yield
    except SessionizerError as error:
        if name:
            error.rule = f"sources, {name}: {error.rule}"
        raise


def require_source(table: "Table | LocalTable", source: EventSource, *, changes: bool = True) -> None:
    """Raise unless the source is there, and (changes) records its changes where these are read."""
    table.require(f"check the path or name, or {MAKE_IT}")
    if changes and source.changes == "feed" and table.setting(CHANGE_FEED) != "true":
        raise SourceError(
            "the source must record its changes, and its change data feed is off",
            value=table.location,
            remedy="`sessionizer init` turns it on (table property delta.enableChangeDataFeed); or set source.changes: "
            "appends, where rows are only added",
        )


def check_same(table: "Table | LocalTable", done: Consumed) -> None:
    """Raise unless this is the table that a run has read, with the versions that it has read."""
    latest = table.version
    if table.id != done.id:
        raise SourceError(
            "the source is not the table that was read before: it was dropped and made again",
            value=table.id,
            remedy=f"point {table.field} at the table with the id {done.id}; {ANEW}",
        )
    if done.version > latest:
        raise SourceError(
            f"the source has gone back: version {done.to_version} was read before",
            value=latest,
            remedy=f"bring the table back to where it was; {ANEW}",
        )


def pruned_by(source: EventSource, columns: T.StructType) -> tuple[str, T.DataType, int] | None:
    """The column whose statistics say which files may hold events of a time: its name and type, and how far off it is.

    That is `event_time`, if it is a column, else `prune_by`, in microseconds; None: neither serves.
    Errors: SourceMismatch where there is no column of the name that `prune_by` says.
    """
    of_name = {field.name.lower(): field for field in columns.fields}
    found, margin = of_name.get(source.event_time.lower()), 0
    if found is None or not isinstance(found.dataType, T.TimestampType):
        if source.prune_by is None:
            return None
        for problem in column_problems((source.prune_by,), columns, field_of(source, "prune_by")):
            raise problem
        found, margin = of_name[source.prune_by.lower()], DAY  # a day may be that of another time zone
    return (found.name, found.dataType, margin) if isinstance(found.dataType, T.TimestampType | T.DateType) else None


def gone(version: int, error: Exception) -> SourceError:
    """What is wrong where the version that was consumed is no longer there."""
    return SourceError(
        f"the source cannot be read as of version {version}, which is the one that was consumed",
        value=first_line(error),
        remedy="its files were vacuumed, or its log was cleaned up; if it has newer versions, "
        f"`sessionizer run` consumes them and then this works again; else {ANEW}",
    )


def first_line(error: Exception) -> str:
    """What Delta or Spark says, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "[" in line), lines[0])
