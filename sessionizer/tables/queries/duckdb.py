"""The tables and their views in DuckDB: no Spark, and nothing can be changed."""

from collections.abc import Mapping
from typing import Any

import duckdb
from pyspark.sql import types as T

from sessionizer.lib.config import Stitch, events_of
from sessionizer.tables.queries.local import LocalTableSet, NeedsSpark
from sessionizer.tables.queries.views import names_table, views_named_in

LOCKED = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",  # no query sees the variables of this program
    "SET enable_external_access = false",  # nor other files
    "SET lock_configuration = true",
)


def quoted(name: str) -> str:
    """The name as DuckDB quotes it."""
    return '"' + name.replace('"', '""') + '"'


def check_told_alike(columns: T.StructType) -> None:
    """Raise NeedsSpark if DuckDB and Spark write values of such columns differently.

    Those are numbers of single precision within anything but one array, and keys of maps that are no texts.
    """
    for field in columns.fields:
        if _told_otherwise(field.dataType, within=False):
            raise NeedsSpark(f"DuckDB writes {field.name}, {field.dataType.simpleString()}, in other words")


def _told_otherwise(kind: T.DataType, *, within: bool) -> bool:
    match kind:
        case T.FloatType():
            return within
        case T.ArrayType():
            return _told_otherwise(kind.elementType, within=within or not isinstance(kind.elementType, T.FloatType))
        case T.MapType():
            return not isinstance(kind.keyType, T.StringType) or _told_otherwise(kind.valueType, within=True)
        case T.StructType():
            return any(_told_otherwise(field.dataType, within=True) for field in kind.fields)
    return False


def connect(tables: LocalTableSet, query: str, frames: Mapping[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
    """A connection that knows the tables and views that a query names, those that exist.

    frames: of Arrow, by name; given, the query reads these alone.

    Errors: NeedsSpark for a table that only Spark reads, and for a view over the change feed.
    """
    views = list(views_named_in(query, [quoted(name) for name in tables.config.source.key])) if frames is None else []
    if feed := next((view.name for view in views if "feed" in view.reads), None):
        raise NeedsSpark(f"{feed} reads Delta's change feed")
    connection, known = duckdb.connect(), set()
    if frames is None:
        frames = {
            name: table.dataset()
            for name, table in tables.existing().items()
            if name.lower() in query.lower() or any(name in view.reads for view in views)
        }
    stitched = {events_of(of): (of.label, of.stitch) for of in tables.config.each if of.stitch is not None}
    for name, frame in frames.items():
        connection.register(f"_{name}", frame)
        rows = f'FROM "_{name}"'
        if name in stitched and names_table(query, name):
            label, stitch = stitched[name]
            _check_smallest_alike(tables.mappings[label].schema, stitch)
            connection.register(f"_{name}_mapping", tables.mappings[label].dataset())
            rows = _stitched(rows, f'"_{name}_mapping"', stitch)
        connection.execute(f'CREATE TEMP VIEW "{name}" AS {rows}')
        known.add(name)
    for view in views:
        if view.reads <= known:
            text = view.text.format(**{name: f'"_{name}"' for name in view.reads})
            view.check(connection.sql(text).columns, query)
            connection.execute(f'CREATE OR REPLACE TEMP VIEW "{view.name}" AS {text}')
    for setting in LOCKED:
        connection.execute(setting)
    return connection


def _check_smallest_alike(mapping: T.StructType, of: Stitch) -> None:
    """Raise NeedsSpark where DuckDB may take another of several values for the smallest: it has nulls within last."""
    for field in mapping.fields:
        if field.name.lower() == of.to.lower() and isinstance(field.dataType, T.StructType | T.ArrayType):
            raise NeedsSpark(f"DuckDB orders {field.name}, {field.dataType.simpleString()}, in another way")


def _stitched(rows: str, mapping: str, of: Stitch) -> str:
    """These rows with the column that they get from a mapping table."""
    place, to, column = quoted(of.from_), quoted(of.to), quoted(of.column)
    told = f"SELECT {place} AS __from, min({to}) AS {column} FROM {mapping} WHERE {to} IS NOT NULL GROUP BY ALL"
    return f"SELECT e.*, m.{column} {rows} AS e LEFT JOIN ({told}) AS m ON e.{place} = m.__from"
