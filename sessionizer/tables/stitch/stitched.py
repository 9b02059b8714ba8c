"""A source whose events get a column from a mapping table, as if its own rows had it (SEMANTICS §4b)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sessionizer.lib.admission.united import of_one
from sessionizer.lib.config import Config, EventSource, Stitch
from sessionizer.lib.errors import SourceError
from sessionizer.tables.delta import NO_CHANGES
from sessionizer.tables.delta.readable import opens
from sessionizer.tables.events import EventTable
from sessionizer.tables.increments import Increment, behind_upkeep, passed
from sessionizer.tables.manifest import Consumed
from sessionizer.tables.stitch.mapping import MappingTable


def event_table(spark: SparkSession, config: Config, of: EventSource) -> EventTable:
    """A table of events, with the column of its mapping table where it has one."""
    return EventTable(spark, config, of) if of.stitch is None else StitchedTable(spark, config, of, of.stitch)


class StitchedTable(EventTable):
    """A table of events with one column more.

    What its readers see is a table that has this column, and is updated in the moment in which a run first reads a
    change of the mapping: nobody else knows of a mapping.
    """

    def __init__(self, spark: SparkSession, config: Config, of: EventSource, stitch: Stitch) -> None:
        super().__init__(spark, config, of)
        self.mapping = MappingTable(spark, of, stitch)

    def require(self) -> None:
        """Raise unless both tables are there and record their changes."""
        super().require()
        self.mapping.require()

    def check_same(self, done: Consumed) -> None:
        """Raise unless these are the tables that a run has read, with the versions that it has read."""
        super().check_same(done)
        self.mapping.plan(done.stitch)

    def plan(self, done: Consumed | None, to_version: int | None, end: Increment | None = None) -> Increment | None:
        """What the next run reads, with all changes of the mapping up to that end; None where nothing is left.

        Where a commit that changes rows has to be an increment of its own, these come alone, before others: unless the
        source can no longer be read as it has been consumed. They wait where it cannot be at the end of the others.
        """
        found = super().plan(done, to_version, end)
        known = None if done is None or done.to_version is None else done
        mapping = self.mapping.plan(None if known is None else known.stitch, None if end is None else end.mapping)
        if known is not None and not mapping.is_passed and (found is None or self.policies.one_by_one):
            stays = passed(known)
            if found is not None:
                stays = behind_upkeep(self.table, known, found.last)
                if not self._is_there(stays.last):
                    there = next(filter(self._is_there, range(stays.last + 1, found.last)), found.last)
                    return replace(self._within(known.version + 1, there, self.limits), mapping=stays.mapping)
            found = stays
        if found is None or known is None or mapping.is_passed:
            return None if found is None else replace(found, mapping=mapping)
        if not self._is_there(found.last):
            return None if found.is_passed else replace(found, mapping=passed(known).mapping)
        files, size = self.table.size()  # in which the events of what has changed are looked for
        return replace(found, files=found.files + files, bytes=found.bytes + size, mapping=mapping)

    def _is_there(self, version: int) -> bool:
        return version == self.table.version or opens(lambda: self._rows(version))

    def nothing_behind(self, version: int) -> Increment:
        """No more than the table as of a version, by the mapping as it stands."""
        end = super().nothing_behind(version)
        return end if version < 0 else replace(end, mapping=self.mapping.plan(None).to_its_end())

    def read(self, increment: Increment) -> DataFrame:
        """The rows of an increment, and updates of the events whose mapping has changed."""
        if increment.mapping is None or not increment.stitches:
            return of_one(self.own_rows(self._read(increment), increment), self.of)
        news = None if increment.is_passed else self._read(increment)
        rows = self.mapping.images(self._rows(increment.last), news, increment.mapping)
        if news is not None:
            rows = self.own_rows(news, increment).unionByName(rows, allowMissingColumns=True)
        return of_one(rows, self.of)

    def own_rows(self, rows: DataFrame, end: Increment | None = None) -> DataFrame:
        """Rows of the table with the column of the mapping, at an end, or as it stands."""
        return self.mapping.on(rows, _version(end))

    def own_columns(self, end: Increment) -> T.StructType:
        """These columns at the end of an increment."""
        return self.mapping.beside(super().own_columns(end), _version(end))

    def changes_rows_alone(self, increment: Increment) -> bool:
        """Whether it is a commit that changes rows, or changes of the mapping, which have to come alone."""
        return (self.policies.one_by_one and increment.stitches) or super().changes_rows_alone(increment)

    def is_mapped_on(self, done: Consumed) -> bool:
        """Whether the mapping table is the one that was read, with all its changes since."""
        known, table = done.stitch, self.mapping.table
        return known is None or (
            table.id == known.id and (table.version == known.version or self.mapping.has_changes(known))
        )

    def unread_to_keep(self, done: Consumed, last: int) -> str | None:
        """What a run can still read, and whose changes are not to be made."""
        known = done.stitch if self.policies.updates == "quarantine" else None
        if known is not None and self.mapping.has_changes(known):
            end = Increment(None, last)
            moved = self._moved(done, end, self._unread(done, end)[0])
            if moved is not None and not moved.isEmpty():
                return f"version {known.version + 1} of the mapping table"
        return super().unread_to_keep(done, last)

    def unread(self, done: Consumed, end: Increment) -> Iterator[DataFrame]:
        """The same, and updates of the events whose mapping has changed since."""
        each, are_all = self._unread(done, end)
        yield from (of_one(self.own_rows(rows, end), self.of) for rows in each)
        if are_all and (moved := self._moved(done, end, each)) is not None:
            yield of_one(moved, self.of)

    def _moved(self, done: Consumed, end: Increment, news: list[DataFrame]) -> DataFrame | None:
        """Updates of the events that runs have read, whose mapping has changed since; None: nothing that can be read.

        news: the rows of the table that no run has read up to that end.
        """
        known = done.stitch if done.to_version is not None and end.last >= 0 else None
        if known is None or not self.mapping.has_changes(known):
            return None
        mapping = self.mapping.plan(known, end.mapping)
        came = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), news) if news else None
        return None if mapping.is_passed else self.mapping.images(self._rows(end.last), came, mapping)

    @contextmanager
    def reading(self, increment: Increment) -> Iterator[None]:
        """Name the error that comes only when the rows are read: files of either table that are no longer there."""
        with super().reading(increment):
            try:
                yield
            except (PySparkException, Py4JJavaError) as error:
                if (lost := self._lost(increment, error)) is not None:
                    raise lost from error
                raise

    def _lost(self, increment: Increment, error: Exception) -> SourceError | None:
        """What an error tells of the mapping table; None: it is of the events."""
        if (mapping := increment.mapping) is None:
            return None
        # Delta says which versions lack changes, and not of which table.
        parts = self.mapping.parts(mapping)
        is_told = any(sign in str(error) for sign in NO_CHANGES) and increment.stitches
        if is_told and (increment.first, increment.last) not in parts:
            is_lacking = any(f"[{first} , {last}]" in str(error) for first, last in parts)
            return self.mapping.unreadable(mapping, error) if is_lacking else None
        return self.mapping.lost(mapping, error)


def _version(end: Increment | None) -> int | None:
    """Of the mapping; None: the latest."""
    return None if end is None or end.mapping is None else end.mapping.last
