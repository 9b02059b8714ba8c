"""Rows that commits have added, read from the files that the log names: of tables that record no change feed."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.schema.evolution import physical
from sessionizer.tables.delta.changes import check_partitions, places
from sessionizer.tables.delta.read import Reading, takes_rows_away

Values = tuple[tuple[str, str | None], ...]  # of the partition columns, by their names in the log


@dataclass(frozen=True)
class Unreadable(Exception):
    """A commit is no mere addition of rows (`removes`), or the log has it no longer."""

    version: int
    removes: bool


def appended(table: Reading, first: int, last: int) -> DataFrame:
    """The rows that the commits of these versions, both inclusive, have added, with the columns of the last one.

    What a commit only lays elsewhere (OPTIMIZE) is no news. Errors: Unreadable.
    """
    with table.one_look():
        check_partitions(table, first, last)
        schema, latest, names = table.schema_at(last), table.schema, table.partition_columns
    parts, root = list[DataFrame](), table.root
    apart = {physical(latest[name]) for name in names}  # which a column keeps when it is renamed
    partition = [name for name, place in places(schema, latest).items() if place in apart]
    empty = {f.name: F.lit(None) for f in schema.fields if isinstance(f.dataType, T.NullType)}  # which no file has
    inside = [field for field in schema.fields if field.name not in (*partition, *empty)]
    columns = T.StructType([_in_file(field) for field in inside])
    reader = table.spark.read.schema(columns).option("__globPaths__", "false")
    for values, paths in _by_partition(table, first, last).items():
        rows, given = reader.parquet(*[_located(path, root) for path in paths]), dict(values)
        found = {f.name: C.col(physical(f)).cast(_shape(f.dataType, lambda part: part.name)) for f in inside}
        found |= {n: _value(schema[n], given.get(physical(schema[n]))) for n in partition} | empty
        parts.append(rows.select(*[found[name].alias(name) for name in schema.names]))
    while len(parts) > 1:  # in halves: of one behind the other Spark Connect takes some hundred
        parts = [reduce(DataFrame.unionByName, parts[n : n + 2]) for n in range(0, len(parts), 2)]
    return parts[0] if parts else table.spark.createDataFrame([], schema)


def _value(field: T.StructField, told: str | None) -> Column:
    """Of a partition, as the log tells it. An empty text, which some writers put for null, Spark takes for a text."""
    if told == "" and not isinstance(field.dataType, T.StringType):
        told = None
    is_char = re.fullmatch(r"char\((\d+)\)", field.metadata.get(C.LENGTH, ""))
    value = F.lit(told).cast(field.dataType)
    return F.rpad(value, int(is_char[1]), " ") if is_char else value


def _by_partition(table: Reading, first: int, last: int) -> dict[Values, list[str]]:
    """The added files, by the values of their partition."""
    found: dict[Values, list[str]] = {}
    for version in range(first, last + 1):
        for added in _added(table, version):
            found.setdefault(_values(added), []).append(added["path"])
    return found


def _values(added: dict[str, Any]) -> Values:
    """Of an added file."""
    return tuple(sorted(added["partitionValues"].items()))


def _added(table: Reading, version: int) -> Iterator[dict[str, Any]]:
    there = False
    for action in table.actions(version):
        there = True
        if takes_rows_away(action):
            raise Unreadable(version, removes=True)
        if action.get("add", {}).get("dataChange"):
            yield action["add"]
    if not there:
        raise Unreadable(version, removes=False)


def _located(path: str, root: str) -> str:
    """Where a file lies; the log has paths as URIs, mostly relative to the table."""
    return unquote(path) if urlparse(path).scheme else f"{root}/{unquote(path)}"


def _in_file(field: T.StructField) -> T.StructField:
    kept = {C.LENGTH: field.metadata[C.LENGTH]} if C.LENGTH in field.metadata else {}  # else Spark pads no values
    return T.StructField(physical(field), _shape(field.dataType, physical), True, kept)


def _shape(data_type: T.DataType, named: Callable[[T.StructField], str]) -> T.DataType:
    """The type with its parts named so; all of them may be null, as Spark takes them to be in files."""
    match data_type:
        case T.StructType():
            parts = [T.StructField(named(part), _shape(part.dataType, named)) for part in data_type.fields]
            return T.StructType(parts)
        case T.ArrayType():
            return T.ArrayType(_shape(data_type.elementType, named))
        case T.MapType():
            return T.MapType(_shape(data_type.keyType, named), _shape(data_type.valueType, named))
        case _:
            return data_type
