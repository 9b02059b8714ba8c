"""The change feed of a table, beside changes of its columns."""

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lib import columns as C
from tables.delta.log import physical
from tables.delta.read import Reading
from tables.delta.settings import COLUMN_MAPPING, THOUGH_RETYPED


def changed(table: Reading, first: int, last: int) -> DataFrame:
    """The change feed of these versions, both inclusive, its columns typed as in the last of them.

    Without column mapping Delta hands over changes with the columns of today, and refuses to where one was widened.
    """
    then, now = (table.schema, table.schema) if last == table.version else (table.schema_at(last), table.schema)
    mapped = table.setting(COLUMN_MAPPING) not in (None, "none")
    apart = () if mapped else retyped(then, now)
    if not apart:
        return table.changes(first, last)
    table.spark.conf.set(THOUGH_RETYPED, "true")
    rows = table.changes(first, last)
    return rows.withColumns({name: C.col(name).cast(then[name].dataType) for name in apart})


def first_retyped(table: Reading, first: int, last: int) -> int | None:
    """The first version behind `first` in which a column has another type than there; None: there is none."""
    columns = table.schema_at(first)
    if not retyped(columns, table.schema_at(last)):
        return None
    return next(v for v in range(first + 1, last + 1) if retyped(columns, table.schema_at(v)))


def retyped(one: T.StructType, other: T.StructType) -> tuple[str, ...]:
    """The columns of the one that have another type in the other, whatever they are called there."""
    types = {physical(field): field.dataType.simpleString() for field in other.fields}
    return tuple(f.name for f in one.fields if types.get(physical(f), "") not in ("", f.dataType.simpleString()))
