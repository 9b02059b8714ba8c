"""The change feed of a table, beside changes of its columns."""

from collections.abc import Iterator
from functools import lru_cache

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.united import as_type, is_widened
from sessionizer.lib.errors import TableError
from sessionizer.lib.schema.evolution import PHYSICAL, physical
from sessionizer.tables.delta.commits import Entry
from sessionizer.tables.delta.read import Reading
from sessionizer.tables.delta.settings import COLUMN_MAPPING, THOUGH_RETYPED

UNKNOWN = (PySparkException, Py4JJavaError, TableError)  # the log has it no longer; whoever reads it tells better


def changed(table: Reading, first: int, last: int) -> DataFrame:
    """The change feed of these versions, both inclusive, its columns typed as in the last of them.

    Without column mapping, then and now, Delta hands over changes with the columns of today, and refuses to where one
    was widened, unless the session says otherwise when they are read: for all tables that are read together
    (`as_typed`). Then it hands over what it refuses else, too: changes without the values of columns that are gone.
    Errors: PySparkException for these, TableError, as of `check_partitions`.
    """
    with table.one_look():
        check_partitions(table, first, last)
        then, now = table.schema_at(last), table.schema
        if table.setting(COLUMN_MAPPING) not in (None, "none") or _is_mapped(then):
            return table.changes(first, last)
    both = [name for name in then.names if name in now.names]
    other = [n for n in both if then[n].dataType.simpleString() != now[n].dataType.simpleString()]
    types = set(retyped(then, now)) if other else set[str]()
    grown = [n for n in other if n in types and is_widened(then[n].dataType, now[n].dataType)]
    if gone := [*_gone(then, now), *sorted(types.difference(grown))]:
        raise PySparkException(f"columns are gone since, or of another type: {', '.join(gone)}")
    told = [n for n in other if n in grown or n not in types]  # of others parts have come, or are in another order
    if not told:
        return table.changes(first, last)
    if grown:
        table.spark.conf.set(THOUGH_RETYPED, "true")
    kinds = {name: (now[name].dataType, then[name].dataType) for name in told}
    return table.changes(first, last).withColumns({name: as_type(C.col(name), *kinds[name]) for name in told})


def check_partitions(table: Reading, first: int, last: int) -> None:
    """Raise where files of these versions are partitioned by other columns than the table is today.

    Changes are read by the columns of today: those of such files would be told without the values of these columns.
    The first commit that has files and the last one are looked at: one that partitions anew takes the files before it
    away. Errors: TableError.
    """
    today = frozenset(physical(table.schema[name]) for name in table.partition_columns)
    told = ((version, _partitions(table, version)) for version in range(first, last + 1))
    begins = next(((version, found) for version, found in told if found), (last, set[frozenset[str]]()))
    for version, found in (begins,) if begins[0] == last else (begins, (last, _partitions(table, last))):
        if any(names != today and _of_today(names, table, version) != today for names in found):
            raise TableError(
                f"version {version} of {table.field} has files that are partitioned by other columns than the table is "
                "today, and Delta tells their changes without the values of these",
                value=table.location,
                remedy="`sessionizer rebuild` takes the table as it stands (before a first run set source.start: "
                "earliest); a `run` right before a table is partitioned anew leaves it nothing to judge",
            )


def _of_today(names: frozenset[str], table: Reading, version: int) -> frozenset[str]:
    """What files of today call these columns of files of a version."""
    then = table.schema_at(version)
    called = places(then, table.schema)
    by_file = {physical(field): called[field.name] for field in then.fields}
    return frozenset(by_file.get(name, name) for name in names)


def places(columns: T.StructType, later: T.StructType) -> dict[str, str]:
    """What the files of a later version call these columns: where it maps none any more, they were written anew."""
    return {field.name: physical(field) if _is_mapped(later) else field.name for field in columns.fields}


@lru_cache(maxsize=64)  # a run makes several frames of the same changes
def _partitions(table: Reading, version: int) -> set[frozenset[str]]:
    """By which columns the files are partitioned that a commit brings and takes away."""
    files = (action.get("add") or action.get("remove") or {} for action in table.actions(version))
    return {
        frozenset(file["partitionValues"])
        for file in files
        if file.get("dataChange") and file.get("partitionValues") is not None
    }


def as_typed(spark: SparkSession) -> None:
    """Have Delta refuse again to hand over changes of columns of other types."""
    spark.conf.unset(THOUGH_RETYPED)


def parts(table: Reading, first: int, last: int) -> Iterator[tuple[int, int]]:
    """These versions, both inclusive, in parts across which Delta hands over changes."""
    shape = Shape(table)
    for version in range(first, last + 1):
        if shape.is_changed(table.entry(version)) and version > first:
            yield first, version - 1
            first = version
    if first <= last:
        yield first, last


class Shape:
    """The columns of a table, commit after commit: some tell them with every row, though none is another."""

    def __init__(self, table: Reading) -> None:
        self.table = table
        self.columns: T.StructType | None = None  # known by the last commit that told them

    def is_changed(self, entry: Entry | None) -> bool:
        """Whether the next commit has changed columns that were there; False: nobody knows any more."""
        if entry is None or entry.columns is None:
            return False
        before, self.columns = self.columns, entry.columns
        if not entry.version:
            return False  # it has made the table
        try:
            return _is_other(before or self.table.schema_at(entry.version - 1), entry.columns)
        except UNKNOWN:
            return False


def _is_other(before: T.StructType, after: T.StructType) -> bool:
    """Whether columns, or parts of them, have another name or type, or are gone."""
    return bool(_gone(before, after) or retyped(before, after)) or (_is_mapped(before) and not _is_mapped(after))


def _is_mapped(columns: T.StructType) -> bool:
    """Whether files have columns by names of their own, by column mapping."""
    return any(PHYSICAL in field.metadata for field in columns.fields)


def _gone(before: T.StructType, after: T.StructType) -> list[str]:
    """The columns, or parts of them, that have another name or are gone."""
    theirs = dict(_named(after))
    return [name for place, name in _named(before) if theirs.get(place) != name]


def _named(kind: T.DataType, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The names of fields, by where the files have them."""
    match kind:
        case T.StructType():
            for field in kind.fields:
                yield (*place, physical(field)), field.name
                yield from _named(field.dataType, (*place, physical(field)))
        case T.ArrayType():
            yield from _named(kind.elementType, (*place, "element"))
        case T.MapType():
            yield from _named(kind.keyType, (*place, "key"))
            yield from _named(kind.valueType, (*place, "value"))


def retyped(one: T.StructType, other: T.StructType) -> list[str]:
    """The columns of the one that have another type in the other, whatever they are called there.

    A struct that gains or loses parts has the same type still.
    """
    theirs = {physical(field): field.dataType for field in other.fields}
    return [f.name for f in one.fields if physical(f) in theirs and any(_apart(f.dataType, theirs[physical(f)]))]


def _apart(one: T.DataType, other: T.DataType) -> Iterator[bool]:
    """Whether the parts that both have are of other types."""
    match one, other:
        case T.StructType(), T.StructType():
            theirs = {physical(field): field.dataType for field in other.fields}
            for field in one.fields:
                if physical(field) in theirs:
                    yield from _apart(field.dataType, theirs[physical(field)])
        case T.ArrayType(), T.ArrayType():
            yield from _apart(one.elementType, other.elementType)
        case T.MapType(), T.MapType():
            yield from _apart(one.keyType, other.keyType)
            yield from _apart(one.valueType, other.valueType)
        case (T.NullType(), _) | (T.StringType(), T.StringType()):  # a collation makes no other values
            yield False
        case _:
            yield one.simpleString() != other.simpleString()
