"""The sources together: one table of events, or the union of several, each with a position of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sessionizer.lib.admission.united import as_begun, as_united, together, united, with_types
from sessionizer.lib.config import Config
from sessionizer.lib.errors import ConfigError, UsageError
from sessionizer.lib.expressions import expression, key_field, of_event, require_columns
from sessionizer.lib.schema.evolution import bare
from sessionizer.lib.time.spans import Spans
from sessionizer.tables.delta import Entry, Table, as_typed
from sessionizer.tables.delta.readable import opens
from sessionizer.tables.events import EventTable
from sessionizer.tables.increments import NOTHING, Increment, Increments, behind_upkeep, passed
from sessionizer.tables.manifest import Consumed, Manifest
from sessionizer.tables.source import coming, names_before, naming, read_as, waiting
from sessionizer.tables.stitch.stitched import StitchedTable, event_table

Found = TypeVar("Found")


class Events:
    """The events of all sources."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self.spark = spark
        self.each = {source.label: event_table(spark, config, source) for source in config.each}
        self.groups_nulls = config.source.null_keys == "group"

    @property
    def table(self) -> Table:
        """The table of the only one."""
        return self.each[""].table

    @property
    def tables(self) -> dict[str, Table]:
        """Their tables."""
        return {name: one.table for name, one in self.each.items()}

    @property
    def mappings(self) -> dict[str, Table]:
        """The mapping tables of those that have one."""
        return {name: one.mapping.table for name, one in self.each.items() if isinstance(one, StitchedTable)}

    @property
    def versions(self) -> dict[str, int]:
        """The latest of each."""
        return {name: table.version for name, table in self.tables.items()}

    def size(self) -> tuple[int, int]:
        """How many files they have, and how large these are."""
        sizes = [table.size() for table in self.tables.values()]
        return sum(files for files, _ in sizes), sum(size for _, size in sizes)

    @property
    def ids(self) -> Mapping[str, str]:
        """Of their tables, by name."""
        return {name: table.id for name, table in self.tables.items()}

    @property
    def schema(self) -> T.StructType:
        """The columns of all."""
        return self.as_they_stand().schema

    def require(self) -> None:
        """Raise unless all tables are there, record their changes, and go together."""
        self._of_all(EventTable.require)
        self.check_together()

    def check_together(self) -> None:
        """Raise unless their columns, keys and times go together. Errors: SourceMismatch, ConfigError."""
        if "" not in self.each:
            together([rows.schema for rows in self._of_all(EventTable.as_it_stands).values()])
            self._check_keys()
            self._check_own()

    @property
    def ends(self) -> Increments:
        """Nothing behind the latest version of each, and of its mapping."""
        return Increments({name: one.nothing_behind(one.table.version) for name, one in self.each.items()})

    def plan(self, done: Manifest | None, to_version: int | None, until: Increments | None = None) -> Increments | None:
        """What the next run reads, within `limits`, which are of each source; None where nothing is left up to there.

        A commit that changes rows, where each of them is an increment of its own, comes alone, before or behind what
        the others add, whatever waits for longer; where another source begins behind its latest version, that position
        is taken all the same.
        Errors: as of `EventTable.plan`; UsageError for a version where there are several sources.
        """
        if to_version is not None and "" not in self.each:
            raise UsageError(
                "--to-version is of one source, and the config has several",
                value=to_version,
                remedy="leave it out; limits.max_versions_per_run has a run read so many versions of each",
            )
        known = self.consumed(done)
        to = {} if until is None else until.of
        planned = self._of_all(lambda one: one.plan(known.get(one.of.label), to_version, to.get(one.of.label)))
        if all(one is None for one in planned.values()):
            return None
        found = {name: one or passed(known.get(name)) for name, one in planned.items()}
        waiting = [name for name, one in found.items() if not one.is_empty]
        alone = {name for name in waiting if self.each[name].changes_rows_alone(found[name])}
        if alone and len(waiting) > 1:
            # What is corrected is looked for in the others as they have been read: may that still be possible.
            stays = {n: behind_upkeep(self.tables[n], known.get(n), found[n].last) for n in waiting}
            first = min(waiting, key=lambda name: (self._is_there(name, stays[name]), self._since(name, found[name])))
            wait = set(waiting) - {first} if first in alone else alone
            found = {name: stays[name] if name in wait else one for name, one in found.items()}
        ends = (self.ends if until is None else until).of
        waits = {n for n, one in found.items() if one == NOTHING and planned[n] is None}
        unread = {n for n, one in found.items() if one.is_before(ends[n])}
        return Increments(found, unread - waits)  # whose start is still to come

    def consumed(self, done: Manifest | None) -> Mapping[str, Consumed]:
        """How far runs have read these sources, by name."""
        return {} if done is None else {name: of for name, of in done.consumed.items() if name in self.each}

    def told_apart(self, done: Manifest) -> set[str]:
        """The sources whose rows runs have told by another mapping table."""
        return {name for name, of in self.consumed(done).items() if not self.each[name].is_mapped_on(of)}

    def begun(self, done: Manifest | None) -> Mapping[str, Consumed]:
        """The same of those that runs have begun to read."""
        return {name: of for name, of in self.consumed(done).items() if of.to_version is not None}

    def beginning(self, done: Manifest | None, began: Mapping[str, int | None]) -> dict[str, int]:
        """Of sources that began at such versions those that a run begins now, behind the first of them."""
        read = {} if done is None else read_as(done, self.ids)
        return {name: first for name, first in began.items() if first and name not in read}

    def nothing_new(self, done: Manifest | None, until: Increments | None = None) -> Increments:
        """No more than what runs have read; more of it is unread, up to that end, where this is told."""
        known, versions = self.consumed(done), self.versions if until is None else until.lasts
        more = [name for name, of in self.begun(done).items() if of.version < versions[name]]
        return Increments({name: passed(known.get(name)) for name in self.each}, more)

    def as_rebuilt(self, done: Manifest) -> Increments:
        """No more than the sources as they stand; of one that waits for its start, as a new one does, nothing."""
        waits = waiting(done, {name: one.of for name, one in self.each.items()}, self.ids)
        at = {name: -1 if name in waits else version for name, version in self.versions.items()}
        return Increments({name: self.each[name].nothing_behind(version) for name, version in at.items()})

    def read(self, increments: Increments) -> DataFrame:
        """The rows of increments with their `_commit_version` and, from the change feed, `_change_type`."""
        as_typed(self.spark)
        frames = _as_begun(self._of_all(lambda one: one.read(increments.of[one.of.label])), increments)
        return self._united(frames, increments)

    def deletion(self, increments: Increments) -> Entry | None:
        """The commit that increments are, if it is one DELETE alone."""
        read = {name: one for name, one in increments.of.items() if not one.is_empty}
        (name, one), *others = read.items() or [("", NOTHING)]
        return None if others or not read else self.each[name].deletion(one)

    def before(self, began: Mapping[str, int], increments: Increments) -> DataFrame:
        """All rows of these sources as they were before these versions; what one has not, is null."""
        frames = [self.each[name].before(version, increments.of[name]) for name, version in began.items()]
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

    def as_of(self, ends: Increments, spans: Spans | None) -> DataFrame:
        """All rows at the ends of increments that lie in these spans of time, and maybe others."""
        frames = _as_begun(self._of_all(lambda one: one.as_of(ends.of[one.of.label], spans)), ends)
        return self._united(frames, None)

    def as_they_stand(self) -> DataFrame:
        """All rows of the latest versions."""
        return self._united(self._of_all(EventTable.as_it_stands), None)

    def columns_told(self, ends: Increments) -> dict[str, str]:
        """The columns of each at the end of its increment, as manifests keep them."""
        columns = as_begun(self._of_all(lambda one: one.columns_told(ends.of[one.of.label])), ends.begun)
        return {name: bare(of).json() for name, of in as_united(columns).items()}

    def check_same(self, done: Manifest) -> None:
        """Raise unless these are the tables that a run has read, with the versions that it has read."""
        known = self.begun(done)
        self._of_all(lambda one: one.check_same(known[one.of.label]) if one.of.label in known else None)

    def goes_on(self, done: Manifest, last: Mapping[str, int]) -> bool:
        """Whether these tables, as of these versions, have what a run has read, and what came to them since."""
        if done.consumed.keys() != self.each.keys():
            return False
        begun = [name for name, of in done.consumed.items() if of.to_version is not None]
        return self.going_on(done, last).issuperset(begun)

    def going_on(self, done: Manifest, last: Mapping[str, int]) -> set[str]:
        """The sources of which this is so."""
        return {name for name, of in self.consumed(done).items() if self.each[name].goes_on(of, last[name])}

    def unread_to_keep(self, done: Manifest, last: Mapping[str, int]) -> str | None:
        """The first version of any that a run can still read, and whose changes are not to be made; or None."""
        known = self._known(done, last).items()
        found = (self.each[name].unread_to_keep(of, last[name]) for name, of in known)
        return next((version for version in found if version is not None), None)

    def unread(self, done: Manifest, ends: Increments) -> Iterator[DataFrame]:
        """What no run has read of the sources, as far as it can still be read, by the columns of all.

        That is all of one that comes to others; of another table in the place of one nobody knows.
        """
        known, none = self._known(done, ends.lasts), self._of_all(lambda o: o.as_of(ends.of[o.of.label], None).limit(0))
        for name in sorted(known.keys() | coming(done, self.ids)):
            one, end = self.each[name], ends.of[name]
            is_new = name not in known or known[name].to_version is None
            found = one.all_new(end) if is_new else one.unread(known[name], end)
            for rows in found:
                yield dict(zip(none, united([*(none | {name: rows}).values()]), strict=True))[name]

    def _known(self, done: Manifest, last: Mapping[str, int]) -> dict[str, Consumed]:
        """How far runs have read those that go on, one alone that has become one of several among them."""
        known = {name: done.consumed[old] for name, old in names_before(done, self.ids).items()}
        return {name: of for name, of in known.items() if self.each[name].goes_on(of, last[name])}

    @contextmanager
    def reading(self, increments: Increments) -> Iterator[None]:
        """Name the error that comes only when rows are read: of the source whose place it tells, else of any read."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            told = [name for name, table in self.tables.items() if table.is_named_by(error)]
            read = [name for name, one in increments.of.items() if not one.is_empty] or list(self.each)
            for name in told or read:
                whose, one = name if told else " or ".join(read), self.each[name]
                with suppress(PySparkException, Py4JJavaError), naming(whose), one.reading(increments.of[name]):
                    raise error
            raise

    def _united(self, frames: Mapping[str, DataFrame], increments: Increments | None) -> DataFrame:
        """One frame of all; those of empty increments lend no more than their columns."""
        names, rows = list(frames), united(list(frames.values()))
        full = [one for name, one in zip(names, rows, strict=True) if increments and not increments.of[name].is_empty]
        taken: Sequence[DataFrame] = full or (rows[:1] if increments else rows)
        return reduce(DataFrame.union, taken)

    def _is_there(self, name: str, stays: Increment) -> bool:
        """Whether a source can be read as it would stay: it could not wait else."""
        return opens(lambda: self.each[name].as_of(stays, None))

    def _since(self, name: str, increment: Increment) -> int:
        """When the first commit was made that an increment reads; 0: it begins the source, or no log has it."""
        table, first = self.tables[name], increment.first
        if increment.is_passed and increment.mapping is not None:
            table, first = self.mappings[name], increment.mapping.first
        entry = None if first is None else table.entry(first)
        return 0 if entry is None else entry.timestamp_us

    def _check_keys(self) -> None:
        """Raise where an event has no key because SQL fails, and would be one of those whose key is null."""
        for name, one in self.each.items() if self.groups_nulls else ():
            for key in one.of.made:
                if of_event(key.expr, one.own_rows(one.table.read()), key_field(key))[1] is not None:
                    raise ConfigError(
                        f"sources, {name}: a key by SQL that may have no value does not go with null_keys: group",
                        value=key.expr,
                        remedy="write it so that it is null there, as try_cast(…) and try_divide(…) are",
                    )

    def _check_own(self) -> None:
        """Raise unless what a source says of its events is of its own columns, and their times are of one type."""
        kinds = {}
        for name, one in self.each.items():
            with naming(name):
                rows = one.own_rows(one.table.read())
                require_columns(one.of.order_by, rows, "source.order_by")
                if one.of.where is not None:
                    expression(one.of.where, rows, "source.where")
                time = of_event(one.of.event_time, rows, "source.event_time")[0]
                kinds[name] = rows.select(time.alias("t")).schema["t"].dataType.simpleString().upper()
        if len(set(kinds.values())) > 1:
            raise ConfigError(
                "event_time must have one type in all sources",
                value=", ".join(f"{name}: {kind}" for name, kind in kinds.items()),
                remedy="write an expression, such as CAST(at AS TIMESTAMP), timestamp_millis(…) or try_to_timestamp(…)",
            )

    def _of_all(self, of: Callable[[EventTable], Found]) -> dict[str, Found]:
        """What each has to say, by name; errors name the source."""
        found = {}
        for name, one in self.each.items():
            with naming(name):
                found[name] = of(one)
        return found


def _as_begun(frames: Mapping[str, DataFrame], ends: Increments) -> dict[str, DataFrame]:
    """The frames, those of sources that no run has begun with the types of the others."""
    kinds = as_begun({name: rows.schema for name, rows in frames.items()}, ends.begun)
    return {name: with_types(rows, kinds[name]) for name, rows in frames.items()}
