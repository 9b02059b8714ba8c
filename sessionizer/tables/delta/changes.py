"""The change feed of a table, beside changes of its columns."""

from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.united import as_type, is_widened
from sessionizer.lib.errors import TableError
from sessionizer.tables.delta.read import Reading
from sessionizer.tables.delta.settings import COLUMN_MAPPING, THOUGH_RETYPED, physical

RESHAPES = ("RENAME COLUMN", "DROP COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS", "REPLACE COLUMNS")


def changed(table: Reading, first: int, last: int) -> DataFrame:
    """The change feed of these versions, both inclusive, its columns typed as in the last of them.

    Without column mapping Delta hands over changes with the columns of today, and refuses to where one was widened,
    unless the session says otherwise when they are read: for all tables that are read together (`as_typed`).
    """
    then, now = (table.schema, table.schema) if last == table.version else (table.schema_at(last), table.schema)
    mapped = table.setting(COLUMN_MAPPING) not in (None, "none")
    grown = [] if mapped else [n for n in retyped(then, now) if is_widened(then[n].dataType, now[n].dataType)]
    if not grown:
        return table.changes(first, last)
    table.spark.conf.set(THOUGH_RETYPED, "true")
    kinds = {name: (now[name].dataType, then[name].dataType) for name in grown}
    return table.changes(first, last).withColumns({name: as_type(C.col(name), *kinds[name]) for name in grown})


def as_typed(spark: SparkSession) -> None:
    """Have Delta refuse again to hand over changes of columns of other types."""
    spark.conf.unset(THOUGH_RETYPED)


def first_reshaped(table: Reading, first: int, last: int) -> int | None:
    """The first version behind `first` whose columns are not those before it and maybe others; None: none is known.

    Delta hands over no changes from before to behind it.
    """
    try:
        for version in range(first + 1, last + 1):
            if table.operation(version) in RESHAPES:
                return version
            if table.tells_columns(version) and _is_other(table.schema_at(version - 1), table.schema_at(version)):
                return version
    except (PySparkException, Py4JJavaError, TableError):  # the log has it no longer; whoever reads it tells better
        pass
    return None


def _is_other(before: T.StructType, after: T.StructType) -> bool:
    names = {physical(field): field.name for field in after.fields}
    return any(names.get(physical(f)) != f.name for f in before.fields) or bool(retyped(before, after))


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
        case T.NullType(), _:
            yield False
        case _:
            yield one.simpleString() != other.simpleString()
