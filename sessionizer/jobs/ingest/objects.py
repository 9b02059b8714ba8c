"""Columns of JSON that hold objects in some lines and none in others: what type the objects have."""

from collections.abc import Collection, Iterable
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.ingest.file_columns import widened
from sessionizer.jobs.ingest.lines import LINE
from sessionizer.lib import columns as C

READING = {"mode": "DROPMALFORMED", "lineSep": "\n", "encoding": "UTF-8"}


def with_objects(
    found: T.StructType, lines: DataFrame, folder: Path, paths: Iterable[str], known: Collection[str]
) -> T.StructType:
    """The columns as found, but those that a path such as `user.id` leads into have the type of their objects.

    Spark takes a column for text if one line has no object there, or none has. One with text alone stays so.
    known: columns whose type is known otherwise, in small letters. folder: one to make, for what is read twice.
    """
    own, fields = {name.lower() for name in found.fieldNames()}, []
    deep = [path for path in paths if path.lower() not in own]
    for n, field in enumerate(found.fields):
        begin = f"{field.name}.".lower()
        ways = [path[len(begin) :].split(".") for path in deep if path.lower().startswith(begin)]
        if ways and isinstance(field.dataType, T.StringType) and field.name.lower() not in known:
            kind = _of_objects(lines, field.name, folder / str(n), ways) or field.dataType
            fields.append(T.StructField(field.name, kind))
        else:
            fields.append(field)
    return T.StructType(fields)


def _of_objects(lines: DataFrame, name: str, folder: Path, ways: list[list[str]]) -> T.DataType | None:
    value = F.from_json(C.col(LINE), "MAP<STRING, STRING>")[name]
    values = lines.select(value.alias("value")).where(C.col("value").isNotNull())
    looks_so = C.col("value").startswith("{") & ~C.col("value").contains("\n")
    values.where(looks_so).write.text(folder.as_uri())
    inferred = lines.sparkSession.read.options(**READING).json(folder.as_uri()).schema
    if inferred.fields:
        return inferred
    return reduce(widened, map(_struct, ways)) if values.where(~looks_so).isEmpty() else None


def _struct(way: list[str]) -> T.DataType:
    """The type of an object that holds a text at the end of this way."""
    text: T.DataType = T.StringType()
    return reduce(lambda inner, name: T.StructType([T.StructField(name, inner)]), reversed(way), text)
