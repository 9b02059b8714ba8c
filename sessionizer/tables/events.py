"""A source: a table of events, read version by version."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from operator import or_

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.retold import as_told, with_later
from sessionizer.lib.admission.united import of_one
from sessionizer.lib.config import Config, EventSource, Limits, StartTimestamp, StartVersion, field_of, policies
from sessionizer.lib.errors import SourceError, TableError
from sessionizer.lib.schema.evolution import later
from sessionizer.lib.time.spans import Spans
from sessionizer.tables.delta import BYTES_WRITTEN, FILES_WRITTEN, GONE, NO_CHANGES, Entry, Shape, Table, changed, parts
from sessionizer.tables.delta.readable import first_readable, opens, reads
from sessionizer.tables.increments import Increment
from sessionizer.tables.manifest import Consumed
from sessionizer.tables.source import (
    added,
    check_same,
    ends_where_gone,
    gone,
    pruned_by,
    require_source,
    starting_behind,
    unreadable,
)

NEAR = 10  # versions: so near to the latest one it is about as large


class EventTable:
    """A table of events. of: what the config says of it; limits and corrections are those of the config."""

    def __init__(self, spark: SparkSession, config: Config, of: EventSource) -> None:
        self.spark = spark
        self.of = of
        self.limits, self.policies = config.limits, policies(config.corrections)
        self.table = Table(spark, of.table, field_of(of))

    def nothing_behind(self, version: int) -> Increment:
        """No more than the table as of a version."""
        return Increment(version + 1, version)

    def require(self) -> None:
        """Raise unless the table is there and records its changes."""
        require_source(self.table, self.of)

    def check_same(self, done: Consumed) -> None:
        """Raise unless this is the table that a run has read, with the versions that it has read."""
        with self.table.one_look():
            check_same(self.table, done)

    def plan(self, done: Consumed | None, to_version: int | None, end: Increment | None = None) -> Increment | None:
        """What the next run reads, within `limits`, and nothing behind the end; None where nothing is left.

        Errors: SourceError where the source is no longer the table, or no longer at the version, that was read.
        """
        latest, limits = self.table.version if end is None else end.last, self.limits
        if to_version is not None and to_version > latest:
            raise SourceError(
                f"--to-version must be a version of the source, and its latest is {latest}", value=to_version
            )
        last = latest if to_version is None else to_version
        if done is None or done.to_version is None:
            return self._first(last, limits)
        self.check_same(done)
        first = done.to_version + 1
        return None if first > last else self._within(first, last, limits)

    def read(self, increment: Increment) -> DataFrame:
        """The rows of an increment with their `_commit_version` and, from the change feed, `_change_type`."""
        return of_one(self._read(increment), self.of)

    def _read(self, increment: Increment) -> DataFrame:
        if increment.is_passed:
            return self._rows(increment.last if increment.last >= 0 else None).limit(0)
        if increment.first is None:
            return self._rows(increment.last).withColumn(C.COMMIT_VERSION, F.lit(increment.last).cast("bigint"))
        return self._with_later(self._changed(increment.first, increment.last), increment.last)

    def _changed(self, first: int, last: int) -> DataFrame:
        try:
            if self.of.changes == "appends":
                return added(self.table, first, last)
            return changed(self.table, first, last).drop(C.COMMIT_TIMESTAMP)
        except PySparkException as error:
            raise unreadable(Increment(first, last), error) from error

    def _rows(self, version: int | None) -> DataFrame:
        """All rows as of a version, or the latest."""
        return self._with_later(self.table.read(version), version)

    def _with_later(self, rows: DataFrame, version: int | None) -> DataFrame:
        """Rows as of a version with the columns that came behind it, which are null: today's config may name them."""
        if version is None:
            return rows
        with self.table.one_look():
            return with_later(rows, self.table.schema_at(version), self.table.schema)

    def deletion(self, increment: Increment) -> Entry | None:
        """The commit that an increment is, if it is one DELETE alone."""
        entry = self.table.entry(increment.last) if increment.first == increment.last else None
        return entry if entry is not None and entry.operation == "DELETE" else None

    def changes_rows_alone(self, increment: Increment) -> bool:
        """Whether it is a commit that changes rows, where each of these is an increment of its own."""
        is_one = increment.first == increment.last
        return self.policies.one_by_one and is_one and self.table.removes_rows(increment.last)

    def is_mapped_on(self, _: Consumed) -> bool:
        """Whether what made a column of the rows that were read is there still, with all its changes since."""
        return True

    def unread_to_keep(self, done: Consumed, last: int) -> str | None:
        """The first version up to this one whose changes are not to be made, if a run can still come to it; or None."""
        first = done.first_unread(last)
        waits = next((v for v in range(first, last + 1) if self._waits(v)), None)
        if waits is None:
            return None
        at_once, one_by_one = [(first, waits)], [(v, v) for v in range(first, waits + 1)]
        if any(all(reads(partial(self._changed, *of)) for of in versions) for versions in (at_once, one_by_one)):
            return f"version {waits} of the source"
        return None

    def unread(self, done: Consumed, end: Increment) -> Iterator[DataFrame]:
        """What no run has read up to this end, by the columns there, as far back as it can still be read."""
        yield from (of_one(self.own_rows(rows, end), self.of) for rows in self._unread(done, end)[0])

    def all_new(self, end: Increment) -> Iterator[DataFrame]:
        """All rows at this end as what has come, if there is any."""
        if end.last >= 0:
            rows = self.read(replace(end, first=None))
            yield rows.withColumn(C.CHANGE_TYPE, F.lit("insert"))

    def _unread(self, done: Consumed, end: Increment) -> tuple[list[DataFrame], bool]:
        """The rows of the table among it, and whether all of it can still be read."""
        found = list[DataFrame]()
        for low, high in reversed([*parts(self.table, done.first_unread(end.last), end.last)]):
            since = first_readable(partial(self._told, end), low, high)
            if since <= high:
                found.append(self._told(end, since, high))
            if since > low:
                return found, False
        return found, True

    def _told(self, end: Increment, low: int, high: int) -> DataFrame:
        """Changes of these versions, by the columns at an end behind them."""
        return as_told(self._read(Increment(low, high)), *map(self.table.schema_at, (high, end.last)))

    def _waits(self, version: int) -> bool:
        deletes = self.policies.deletes == "ignore" and self.deletion(Increment(version, version)) is not None
        return deletes or (self.policies.updates == "quarantine" and self.table.removes_rows(version))

    def as_of(self, end: Increment, spans: Spans | None) -> DataFrame:
        """All rows at the end of an increment that lie in these spans of time (microseconds, inclusive), maybe others.

        Files are left closed by the statistics of `event_time`, where it is a column, else of `prune_by`.
        """
        if end.last < 0:
            return of_one(self.own_rows(self.table.read().limit(0), end), self.of)
        return of_one(self.own_rows(self._of_version(end.last, spans), end), self.of)

    def before(self, version: int, end: Increment) -> DataFrame:
        """All rows as they were before a version, by the columns at the end of an increment behind it."""
        with starting_behind(version - 1, field_of(self.of, "start")):
            rows, (then, now) = self._of_version(version - 1), map(self.table.schema_at, (version - 1, end.last))
        told = self._with_later(as_told(rows, then, now), end.last)
        return of_one(self.own_rows(told, replace(end, last=version - 1)), self.of)

    def _of_version(self, version: int, spans: Spans | None = None) -> DataFrame:
        try:
            rows = self._rows(version)
        except (PySparkException, Py4JJavaError, TableError) as error:
            if isinstance(error, TableError) or any(sign in str(error) for sign in GONE):
                raise gone(version, error) from error
            raise
        within = None if spans is None else self._within_spans(rows, spans)
        return rows if within is None else rows.where(within)

    def as_it_stands(self) -> DataFrame:
        """All rows of the latest version."""
        return of_one(self.own_rows(self.table.read()), self.of)

    def own_rows(self, rows: DataFrame, _: Increment | None = None) -> DataFrame:
        """Rows of the table with the columns that they have without other sources, at an end, or as it stands."""
        return rows

    def own_columns(self, end: Increment) -> T.StructType:
        """These columns at the end of an increment."""
        with self.table.one_look():
            return self.table.schema if end.last < 0 else later(self.table.schema_at(end.last), self.table.schema)

    def columns_told(self, end: Increment) -> T.StructType:
        """The columns at the end of an increment, with what they are called in the files."""
        columns = self.own_columns(end)
        told = of_one(self.spark.createDataFrame([], columns), self.of).schema if self.of.label else columns
        of_table = {field.name: field for field in columns.fields}
        return T.StructType([of_table.get(field.name, field) for field in told.fields])

    def _within_spans(self, rows: DataFrame, spans: Spans) -> Column | None:
        if (pruned := pruned_by(self.of, rows.schema)) is None:
            return None
        name, kind, margin = pruned

        def edge(us: int) -> Column:
            return F.timestamp_micros(F.lit(us)).cast(kind)

        parts = [C.col(name).between(edge(low - margin), edge(high + margin)) for low, high in spans]
        return reduce(or_, parts, C.col(name).isNull() if margin else F.lit(False))

    @contextmanager
    def reading(self, increment: Increment) -> Iterator[None]:
        """Name the error that comes only when the rows are read: files that are no longer there."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            text = str(error)
            vacuumed = any(name in text for name in GONE) and (self.table.by_name or self.table.is_named_by(error))
            if increment.is_passed and vacuumed:
                raise gone(increment.last, error) from error
            if increment.first is not None and (vacuumed or any(sign in text for sign in NO_CHANGES)):
                ended = vacuumed and not opens(lambda: self._rows(increment.last))
                are_there = ended and opens(partial(self._changed, increment.first, increment.last))
                raise (ends_where_gone if are_there else unreadable)(increment, error) from error
            raise

    def goes_on(self, done: Consumed, last: int) -> bool:
        """Whether this table, as of this version, has what a run has read, and what came to it since."""
        return self.table.id == done.id and last >= (done.to_version or 0)

    def _first(self, last: int, limits: Limits) -> Increment | None:
        """Where the very first run begins: a snapshot, unless `start` or `limits` say otherwise."""
        start = self.of.start
        if start == "latest":
            return Increment(last + 1, last)
        if isinstance(start, StartVersion):
            return self._from(start.version, last, limits)
        if isinstance(start, StartTimestamp):
            since, log = int(start.timestamp.timestamp() * 1_000_000), list(self.table.history())
            versions = [e.version for e in log if e.timestamp_us >= since]
            if len(versions) == len(log) and (oldest := min(versions, default=0)) > 0:
                there = next((v for v in range(oldest, last) if opens(partial(self.table.read, v))), last)
                raise SourceError(
                    "the source's log no longer reaches back to source.start: nobody can tell what came before it",
                    value=start.timestamp.isoformat(),
                    remedy=f"begin at a later time, at a version ({{version: {there + 1}}} is the first "
                    "behind one that is there), or earliest with all that is there",
                )
            return self._from(min(versions), last, limits) if versions else None
        if limits.max_versions_per_run is not None or limits.max_events_per_run is not None:
            oldest = min(e.version for e in self.table.history())
            if oldest < last and self._all_is_there(oldest, last):
                return Increment(None, oldest)
        files, size = self.table.size() if self.table.version - last < NEAR else (0, 0)
        return Increment(None, last, files, size)

    def _from(self, first: int, last: int, limits: Limits) -> Increment | None:
        if first > last + 1:
            return None  # taking a position now would let the versions before `first` in later
        return Increment(first, last) if first > last else self._within(first, last, limits)

    def _all_is_there(self, oldest: int, last: int) -> bool:
        """Whether every file of this version, and of the changes since, can be opened: old ones may be vacuumed."""
        return opens(lambda: self.table.read(oldest)) and opens(lambda: self._changed(oldest + 1, last))

    def _within(self, first: int, last: int, limits: Limits) -> Increment:
        """As many versions from `first` on as the limits allow, and at least one; none from before columns changed."""
        if limits.max_versions_per_run is not None:
            last = min(last, first + limits.max_versions_per_run - 1)
        if self.policies.one_by_one and self.table.removes_rows(first):
            last = first
        read, rows, adds, shape = list[Entry](), 0, True, Shape(self.table)
        for version in range(first, last + 1):
            entry = self.table.entry(version)
            if shape.is_changed(entry) and version > first:
                return self._within(first, version - 1, limits)
            rows += entry.rows if entry else 0
            is_full = limits.max_events_per_run is not None and rows > limits.max_events_per_run
            if version > first and (is_full or (self.policies.one_by_one and self.table.removes_rows(version))):
                last = version - 1
                break
            read += [entry] if entry else []
            adds = adds and (_appends(entry) or not self.table.removes_rows(version))
        files, size = (sum(entry.metric(name) for entry in read) for name in (FILES_WRITTEN, BYTES_WRITTEN))
        return Increment(first, last, files, size, adds=adds)


def _appends(entry: Entry | None) -> bool:
    """Whether a commit surely does nothing else."""
    return entry is not None and entry.operation == "WRITE" and entry.parameters.get("mode") == "Append"
