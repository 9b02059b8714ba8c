"""What must hold of the source, whoever reads it, and what helps where it does not."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.united import RENAME_IT
from sessionizer.lib.bags import FROM_FEED
from sessionizer.lib.config import Config, EventSource, field_of
from sessionizer.lib.config.key import parts_of
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import SessionizerError, SourceError
from sessionizer.lib.expressions import column_problems
from sessionizer.tables.delta import CHANGE_FEED, Table, Unreadable, appended, is_on
from sessionizer.tables.manifest import Manifest, Read

if TYPE_CHECKING:
    from sessionizer.tables.increments import Increment
    from sessionizer.tables.queries.local import LocalTable

MAKE_IT = "make it first, for example from files: `sessionizer ingest FILE… --format csv`"
ANEW = (
    "`sessionizer rebuild` makes all sessions anew from the source as it stands, `rebuild --windows` all sliding "
    "windows (before a first run set source.start: earliest)"
)


def named_by(config: Config, tables: "Mapping[str, Table] | Mapping[str, LocalTable]") -> Config:
    """The config of these sources: a key column called `user.id` as a whole comes before a field of that name.

    And of several, a column before an expression of that text.
    """
    is_open = {s.label: _has_paths(s) or bool(s.label and _has_sql(s)) for s in config.each}
    columns = {name: table.schema.names for name, table in tables.items() if is_open[name] and table.exists()}
    return config.over_each(columns) if columns else config


def _has_paths(source: EventSource) -> bool:
    return any(isinstance(entry, str) and parts_of(entry) for entry in source.keys)


def _has_sql(source: EventSource) -> bool:
    return any(not re.fullmatch(r"\w+", text) for text in (source.event_time, source.where) if text is not None)


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
    check_names(table)
    if changes and source.changes == "feed" and not is_on(table.setting(CHANGE_FEED)):
        raise SourceError(
            "the source must record its changes, and its change data feed is off",
            value=table.location,
            remedy="`sessionizer init` turns it on (table property delta.enableChangeDataFeed); or set source.changes: "
            "appends, where rows are only added",
        )


def check_names(table: "Table | LocalTable") -> None:
    """Raise where the source has a column that would be taken for what Delta tells of a change."""
    for name in table.schema.names:
        if name.lower() in FROM_FEED:
            raise SourceError(
                "the source must have no column that is named like one of Delta's change feed",
                value=name,
                remedy=RENAME_IT,
            )


def check_same(table: "Table | LocalTable", done: Read, what: str = "the source") -> None:
    """Raise unless this is the table that a run has read, with the versions that it has read."""
    latest = table.version
    if table.id != done.id:
        raise SourceError(
            f"{what} is not the table that was read before: it was dropped and made again",
            value=table.id,
            remedy=f"point {table.field} at the table with the id {done.id}; {ANEW}",
        )
    if done.version > latest:
        raise SourceError(
            f"{what} has gone back: version {done.to_version} was read before",
            value=latest,
            remedy=f"bring the table back to where it was; {ANEW}",
        )


def names_before(done: Manifest, ids: Mapping[str, str]) -> dict[str, str]:
    """By which name runs know each source: its own, else that of the same table, which is no source's any more.

    ids: of their tables, by the names that they have now. Errors: SourceError where several could be the one of a name.
    """
    then = {name: of.id for name, of in done.consumed.items()}
    names = {name: name for name, place in ids.items() if then.get(name) == place}
    gone, come = ({name: place for name, place in of.items() if name not in names} for of in (then, ids))
    for place in sorted({*gone.values()} & {*come.values()}):
        old, new = (sorted(name for name in of if of[name] == place) for of in (gone, come))
        if len(old + new) > 2:
            raise SourceError(
                "several sources have the same table, as copies of a folder do, and other names than before: nobody "
                "knows which is which",
                value=f"{', '.join(filter(None, old)) or 'source'}: now {', '.join(filter(None, new)) or 'source'}",
                remedy="give them their names one at a time, with a rebuild after each",
            )
        names[new[0]] = old[0]
    return names


def read_as(done: Manifest, ids: Mapping[str, str]) -> dict[str, str]:
    """The same of those sources alone that runs have begun to read: not of those that wait."""
    return {name: old for name, old in names_before(done, ids).items() if done.consumed[old].to_version is not None}


def waiting(done: Manifest, sources: Mapping[str, EventSource], ids: Mapping[str, str]) -> set[str]:
    """The sources that wait for their start, as those that come to others do where they have one: a run begins them."""
    return {name for name in coming(done, ids) if sources[name].start != "earliest"}


def coming(done: Manifest, ids: Mapping[str, str]) -> set[str]:
    """The sources that no run has begun and that come to others, or wait for their start."""
    begun = {name: of.id for name, of in done.consumed.items() if of.to_version is not None}
    unread, read = {name: of.id for name, of in done.consumed.items() if name not in begun}, read_as(done, ids)
    has_others = any(name in begun or place in begun.values() for name, place in ids.items())

    def comes(name: str, place: str) -> bool:
        if name in read:
            return False
        is_other = name not in begun and (name in unread or has_others)  # else it is another table in the place of one
        return is_other or place in unread.values()

    return {name for name, place in ids.items() if comes(name, place)}


def keeps_time(done: Manifest, last: Mapping[str, int], ids: Mapping[str, str]) -> bool:
    """Whether it is as late as runs have come to: of the tables that they have read some are left, and go on.

    No other names of these and no sources that come or go turn the clock back; a table that was made again does.
    last: the versions that the sources have now.
    """
    known, begun = done.consumed, {name: of for name, of in done.consumed.items() if of.to_version is not None}
    places = {of.id for of in known.values()}
    if any(name in ids and ids[name] != of.id and ids[name] not in places for name, of in begun.items()):
        return False
    go_on = all(last[name] >= known[old].version for name, old in read_as(done, ids).items())
    return go_on and (not begun or any(of.id in ids.values() for of in begun.values()))


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


def gone(version: int, error: Exception, what: str = "the source") -> SourceError:
    """What is wrong where the version that was consumed is no longer there."""
    return SourceError(
        f"{what} cannot be read as of version {version}, which is the one that was consumed",
        value=first_line(error),
        remedy="its files were vacuumed, or its log was cleaned up; if it has newer versions, "
        f"`sessionizer run` consumes them and then this works again; else {ANEW}",
    )


@contextmanager
def starting_behind(version: int, field: str) -> Iterator[None]:
    """Say so where the version that a start lies behind is no longer there. field: of the config."""
    try:
        yield
    except SourceError as error:
        raise SourceError(
            f"{field} begins behind version {version}, which is no longer there to tell what stays out",
            value=first_line(error),
            remedy="name a later version, or earliest, which takes all rows that are left",
        ) from error


def unreadable(increment: "Increment", error: Exception) -> SourceError:
    """What is wrong where changes are gone."""
    return SourceError(
        f"the source's changes of versions {increment.first} to {increment.last} cannot be read",
        value=first_line(error),
        remedy="they were vacuumed, or made while its change data feed was off, or with columns of other types; "
        + ANEW,
    )


def ends_where_gone(increment: "Increment", error: Exception) -> SourceError:
    """What is wrong where changes are there, and the table as of their end is not."""
    return SourceError(
        f"the source cannot be read as of version {increment.last}, where this run ends",
        value=first_line(error),
        remedy="files that are not new were vacuumed: where limits end the run, leave limits out of the config for one "
        f"that ends at a later version; {ANEW}",
    )


@contextmanager
def telling_anew(version: int, *, is_rebuild: bool) -> Iterator[None]:
    """Name the error that comes where a version is no longer there that rejected rows are told by.

    is_rebuild: which asks for no more than those that stay out of sessions for good.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise SourceError(
            "columns of the source were renamed, dropped or retyped, and rejected events that were kept as hashes "
            f"cannot be found again: version {version}, which has these columns as they were, cannot be read",
            value=first_line(error),
            remedy=f"bring its files back; {'or make sessions in tables of their own' if is_rebuild else ANEW}",
        ) from error


def added(table: Table, first: int, last: int) -> DataFrame:
    """The rows that versions have added, as of a change feed. Errors: SourceError where they do more, or are gone."""
    try:
        rows = appended(table, first, last)
    except Unreadable as error:
        if error.removes:
            raise SourceError(
                f"version {error.version} of the source updates, deletes or overwrites rows, and source.changes is "
                "appends",
                remedy=f"set source.changes: feed, `sessionizer init`, and then {ANEW}",
            ) from error
        raise SourceError(
            f"the source's log no longer has version {error.version}, which has not been read", remedy=ANEW
        ) from error
    return rows.withColumns({C.CHANGE_TYPE: F.lit("insert"), C.COMMIT_VERSION: F.lit(last).cast("bigint")})


def first_line(error: Exception) -> str:
    """What Delta or Spark says, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "[" in line), lines[0])
