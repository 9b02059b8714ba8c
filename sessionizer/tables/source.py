"""What must hold of the source, whoever reads it, and what helps where it does not."""

from typing import TYPE_CHECKING

from pyspark.sql import types as T

from sessionizer.lib.config import Config
from sessionizer.lib.config.key import parts_of
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import SourceError
from sessionizer.lib.expressions import column_problems
from sessionizer.tables.delta import CHANGE_FEED, Table
from sessionizer.tables.manifest import Manifest

if TYPE_CHECKING:
    from sessionizer.tables.queries.local import LocalTable

MAKE_IT = "make it first, for example from files: `sessionizer ingest FILE… --format csv`"
ANEW = (
    "`sessionizer rebuild` makes all sessions anew from the source as it stands, `rebuild --windows` all sliding "
    "windows (before a first run set source.start: earliest)"
)


def named_by(config: Config, source: "Table | LocalTable") -> Config:
    """The config of this source: a key column that is called `user.id` as a whole comes before a field of that name."""
    is_open = any(isinstance(entry, str) and parts_of(entry) for entry in config.source.keys)
    return config.over(source.schema.names) if is_open and source.exists() else config


def require_source(table: "Table | LocalTable", config: Config, *, changes: bool = True) -> None:
    """Raise unless the source is there, and (changes) records its changes where these are read."""
    table.require(f"check the path or name, or {MAKE_IT}")
    if changes and config.source.changes == "feed" and table.setting(CHANGE_FEED) != "true":
        raise SourceError(
            "the source must record its changes, and its change data feed is off",
            value=table.location,
            remedy="`sessionizer init` turns it on (table property delta.enableChangeDataFeed); or set source.changes: "
            "appends, where rows are only added",
        )


def check_same(table: "Table | LocalTable", done: Manifest) -> None:
    """Raise unless this is the table that a run has read, with the versions that it has read."""
    latest = table.version
    if table.id != done.source_id:
        raise SourceError(
            "the source is not the table that was read before: it was dropped and made again",
            value=table.id,
            remedy=f"point source.table at the table with the id {done.source_id}; {ANEW}",
        )
    if done.source_to_version is not None and done.source_to_version > latest:
        raise SourceError(
            f"the source has gone back: version {done.source_to_version} was read before",
            value=latest,
            remedy=f"bring the table back to where it was; {ANEW}",
        )


def pruned_by(config: Config, columns: T.StructType) -> tuple[str, T.DataType, int] | None:
    """The column whose statistics say which files may hold events of a time: its name and type, and how far off it is.

    That is `event_time`, if it is a column, else `prune_by`, in microseconds; None: neither serves.
    Errors: SourceMismatch where there is no column of the name that `prune_by` says.
    """
    of_name = {field.name.lower(): field for field in columns.fields}
    found, margin = of_name.get(config.source.event_time.lower()), 0
    if found is None or not isinstance(found.dataType, T.TimestampType):
        if config.source.prune_by is None:
            return None
        for problem in column_problems((config.source.prune_by,), columns, "source.prune_by"):
            raise problem
        found, margin = of_name[config.source.prune_by.lower()], DAY  # a day may be that of another time zone
    return (found.name, found.dataType, margin) if isinstance(found.dataType, T.TimestampType | T.DateType) else None
