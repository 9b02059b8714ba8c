"""A mapping table, by which the events of a source get a column: whose device they are of (SEMANTICS §4b)."""

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.united import is_widened
from sessionizer.lib.bags import GOES, own_columns, undone
from sessionizer.lib.config import EventSource, Stitch, field_of
from sessionizer.lib.errors import SourceError, SourceMismatch, TableError
from sessionizer.lib.expressions import column_problems, is_collated, is_ordered, nearest
from sessionizer.lib.schema.evolution import PHYSICAL
from sessionizer.tables.delta import CHANGE_FEED, GONE, Table, changed, is_on, parts, places
from sessionizer.tables.delta.readable import reads
from sessionizer.tables.increments import Increment
from sessionizer.tables.manifest import Read
from sessionizer.tables.source import ANEW, check_same, first_line, gone

if TYPE_CHECKING:
    from sessionizer.tables.queries.local import LocalTable

THE_TABLE = "the mapping table"
FROM, WAS, IS = "__from", "__was", "__is"


def require_mapping(table: "Table | LocalTable", *, changes: bool = True) -> None:
    """Raise unless the mapping table is there, and (changes) records its changes."""
    table.require("check the path or name, or make it: a table of which device is whose")
    if changes and not is_on(table.setting(CHANGE_FEED)):
        raise SourceError(
            "the mapping table must record its changes, and its change data feed is off",
            value=table.location,
            remedy=f"ALTER TABLE … SET TBLPROPERTIES ({CHANGE_FEED} = true) turns it on",
        )


def with_stitched(columns: T.StructType, mapping: T.StructType, of: Stitch, field: str) -> T.StructType:
    """The columns of a source, and the one that its events get. Errors: SourceMismatch."""
    for problem in stitch_problems(columns, mapping, of, field):
        raise problem
    (kind,) = (f.dataType for f in mapping.fields if f.name.lower() == of.to.lower())
    of_no_file = {PHYSICAL: f"{field} {of.column}"}
    return T.StructType([*columns.fields, T.StructField(of.column, kind, True, of_no_file)])


def stitch_problems(columns: T.StructType, mapping: T.StructType, of: Stitch, field: str) -> Iterator[SourceMismatch]:
    """What is wrong with the columns that `stitch` names. field: what errors call it."""
    ours, theirs = ({f.name.lower(): f.dataType for f in kinds.fields} for kinds in (columns, mapping))
    yield from column_problems((of.from_,), columns, f"{field}.from", compared=True)
    for name, where in ((of.from_, f"{field}.from"), (of.to, f"{field}.to")):
        if (kind := theirs.get(name.lower())) is None:
            yield SourceMismatch(
                f"{where} names a column that the mapping table does not have",
                value=name,
                remedy=nearest(name, mapping.names),
            )
        elif not is_ordered(kind):
            yield SourceMismatch(
                f"{where} must name a column whose values can be compared, and this is {kind.simpleString().upper()}",
                value=name,
                remedy="name another column of the mapping table",
            )
        elif name == of.to and is_collated(kind):
            yield SourceMismatch(
                f"{where} must tell texts apart by their letters, and several are one by {kind.simpleString().upper()}",
                value=name,
                remedy="write them to a column without a collation",
            )
    here, there = ours.get(of.from_.lower()), theirs.get(of.from_.lower())
    lengths = [length for kinds in (columns, mapping) if (length := _length(kinds, of.from_))]
    is_padded = len(set(lengths)) > 1  # CHAR(n) of two lengths, which Spark pads only where it knows of both
    if here is not None and there is not None and (is_padded or not _meet(here, there)):
        kinds = lengths if is_padded else [kind.simpleString() for kind in (here, there)]
        yield SourceMismatch(
            f"{field}.from must have one type in the source and in the mapping table",
            value=", ".join(kind.upper() for kind in kinds),
            remedy="write it with the same type into the mapping table",
        )
    if of.column.lower() in ours:
        yield SourceMismatch(
            f"{field} gives a column a name that the source table has already",
            value=of.column,
            remedy=f"give it another one: as: stitched_{of.column}",
        )


def _length(columns: T.StructType, name: str) -> str:
    """What a column is called that is CHAR(n); an empty text: it is none."""
    told = (str(f.metadata.get(C.LENGTH, "")) for f in columns.fields if f.name.lower() == name.lower())
    return next((length for length in told if length.startswith("char(")), "")


def _meet(one: T.DataType, other: T.DataType) -> bool:
    """Whether Spark compares them: as the same type, or as a wider one; of structs the same parts."""
    match one, other:
        case T.StructType(), T.StructType():
            kinds = zip(one.fields, other.fields, strict=False)
            return one.names == other.names and all(_meet(a.dataType, b.dataType) for a, b in kinds)
        case T.ArrayType(), T.ArrayType():
            return _meet(one.elementType, other.elementType)
    return one.simpleString() == other.simpleString() or is_widened(one, other) or is_widened(other, one)


class MappingTable:
    """The table that `stitch` of a source names.

    Of several rows for one value of `from` the smallest `to` counts, so that no order does; one without `to` is none.
    """

    def __init__(self, spark: SparkSession, source: EventSource, of: Stitch) -> None:
        self.of = of
        self.field = field_of(source, "stitch")
        self.table = Table(spark, of.table, f"{self.field}.table")

    def require(self) -> None:
        """Raise unless the table is there and records its changes."""
        require_mapping(self.table)

    def plan(self, done: Read | None, end: Increment | None = None) -> Increment:
        """What comes next of it: all that no run has read, and nothing behind the end.

        Errors: SourceError where it is another table, or older.
        """
        latest = self.table.version if end is None else end.last
        if done is None:
            return Increment(None, latest)
        check_same(self.table, done, THE_TABLE)
        return Increment(done.version + 1, max(latest, done.version))  # another command may have read more

    def beside(self, columns: T.StructType, version: int | None) -> T.StructType:
        """The columns of a source, and the one that its events get. Errors: SourceMismatch."""
        there = self.table.schema if version is None else self.table.schema_at(version)
        return with_stitched(columns, there, self.of, self.field)

    def on(self, rows: DataFrame, version: int | None) -> DataFrame:
        """Rows of the source with the column, by the mapping as of a version, or the latest. Errors: SourceMismatch."""
        there = self._as_of(version)
        for problem in stitch_problems(rows.schema, there.schema, self.of, self.field):
            raise problem
        is_told = C.col(self.of.from_).isNotNull() & C.col(self.of.to).isNotNull()
        told = there.where(is_told).groupBy(C.col(self.of.from_).alias(FROM))
        return self._met(rows, told.agg(F.min(C.col(self.of.to)).alias(self.of.column)), "left")

    def images(self, source: DataFrame, news: DataFrame | None, increment: Increment) -> DataFrame:
        """Updates of the events whose mapping has changed: each as it was, and as it is, as a change feed has them.

        They are of the events that had been read. source: all rows as of the end of the run's increment; news: that
        increment, from the change feed; None: there is none. increment: of the mapping table.
        Errors: SourceError where its changes cannot be read.
        """
        turned = self._turned(increment)
        before = self._met(source, turned, "inner")
        if news is not None:  # nothing older than the version consumed is looked up
            before = undone(before, self._met(news, turned, "inner"))
        own = [C.col(name) for name in own_columns(before.columns)]
        both = [
            F.struct(C.col(value).alias(self.of.column), F.lit(image).alias(C.CHANGE_TYPE))
            for value, image in ((WAS, "update_preimage"), (IS, "update_postimage"))
        ]
        # No version of the source: what waits together in quarantine is of one commit.
        return before.select(*own, F.inline(F.array(*both))).withColumn(
            C.COMMIT_VERSION, F.lit(-1 - increment.last).cast("bigint")
        )

    def unreadable(self, increment: Increment, error: Exception) -> SourceError:
        """What is wrong where changes are gone."""
        return SourceError(
            f"the mapping table's changes of versions {increment.first} to {increment.last} cannot be read",
            value=first_line(error),
            remedy="they were vacuumed, or made while its change data feed was off, or with columns of other names; "
            + ANEW,
        )

    def lost(self, increment: Increment, error: Exception) -> SourceError | None:
        """What an error tells of this table: files of it are gone; None: nothing."""
        if any(name in str(error) for name in GONE) and self.table.is_named_by(error):
            is_told = increment.first is None or increment.is_passed
            return gone(increment.last, error, THE_TABLE) if is_told else self.unreadable(increment, error)
        return None

    def has_changes(self, done: Read) -> bool:
        """Whether there are changes that no run has read, and that can be read."""
        latest = self.table.version
        if self.table.id != done.id or latest <= done.version:
            return False
        return reads(lambda: self._changes(Increment(done.version + 1, latest)))

    def _turned(self, increment: Increment) -> DataFrame:
        """The values of `from` for which the mapping tells something else now: `__from`, `__was`, `__is`.

        What it told before follows from what it tells now and from the changes.
        """
        sign = F.when(C.col(C.CHANGE_TYPE).isin(*GOES), 1).otherwise(-1)
        changes = self._pairs(self._changes(increment), F.lit(0), sign)
        there = self._pairs(self._as_of(increment.last), F.lit(1), F.lit(1))
        near = there.join(changes.select(FROM).distinct(), FROM, "left_semi")
        counted = near.unionByName(changes).groupBy(FROM, "__to").agg(F.sum(WAS).alias(WAS), F.sum(IS).alias(IS))
        told = {name: F.min(F.when(F.col(name) > 0, F.col("__to"))).alias(name) for name in (WAS, IS)}
        return counted.groupBy(FROM).agg(*told.values()).where(~F.col(WAS).eqNullSafe(F.col(IS)))

    def _pairs(self, rows: DataFrame, now: Column, before: Column) -> DataFrame:
        """Rows that tell something, and how often each is there now, and was before."""
        names = [C.col(self.of.from_).alias(FROM), C.col(self.of.to).alias("__to")]
        told = rows.select(*names, before.alias(WAS), now.alias(IS))
        return told.where(F.col(FROM).isNotNull() & F.col("__to").isNotNull())

    def _changes(self, increment: Increment) -> DataFrame:
        """The pairs of the change feed, with their `_change_type`: read in parts where columns change in between."""
        each = self.parts(increment)
        names = tuple({name.lower(): name for name in (self.of.from_, self.of.to, C.CHANGE_TYPE)}.values())
        known = [columns for v in (each[0][0] - 1, *dict(each).values()) if (columns := self._columns(v)) is not None]
        if any(self._places(*both) != self._places(both[1]) for both in pairwise(known)):
            raise self.unreadable(increment, ValueError("the columns of these names were others before"))
        try:
            return reduce(DataFrame.unionByName, [changed(self.table, *p).select(*C.cols(names)) for p in each])
        except PySparkException as error:
            raise self.unreadable(increment, error) from error

    def parts(self, increment: Increment) -> list[tuple[int, int]]:
        """The versions of an increment, in the parts in which they are read."""
        return [] if increment.first is None else list(parts(self.table, increment.first, increment.last))

    def _columns(self, version: int) -> T.StructType | None:
        """As of a version; None: nobody knows."""
        try:
            return self.table.schema_at(version)
        except (PySparkException, Py4JJavaError, TableError):
            return None

    def _places(self, columns: T.StructType, later: T.StructType | None = None) -> list[str]:
        """Where files have the two columns, by what they are called in those of the later ones."""
        there = {name.lower(): place.lower() for name, place in places(columns, later or columns).items()}
        return [there.get(name.lower(), "") for name in (self.of.from_, self.of.to)]

    def _as_of(self, version: int | None) -> DataFrame:
        try:
            return self.table.read(version)
        except (PySparkException, Py4JJavaError) as error:
            if version is not None and any(sign in str(error) for sign in GONE):
                raise gone(version, error, THE_TABLE) from error
            raise

    def _met(self, rows: DataFrame, told: DataFrame, how: str) -> DataFrame:
        from_ = F.coalesce(C.col(self.of.from_))  # bare of its length: a CHAR(n) is compared as any text is
        return rows.join(told, from_ == F.col(FROM), how).drop(FROM)
