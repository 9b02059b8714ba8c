"""Tables read and written without Spark, which takes half a second for each: what tests do around what they test."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import Row
from pyspark.sql import types as T

from sessionizer.tables.delta import arrow_schema

MAPPED = "delta.columnMapping.mode"  # of such a table it reads nulls
SIMPLE = (T.StringType, T.IntegerType, T.LongType, T.DoubleType, T.BooleanType, T.TimestampType, T.DateType)


def read(place: str, names: tuple[str, ...], version: int | None = None) -> list[tuple[Any, ...]] | None:
    """These columns of a table's rows, as Spark would give them; None: only Spark can read it."""
    if not place.startswith("/"):
        return None
    try:
        found = DeltaTable(place, version=version)
        if MAPPED in found.metadata().configuration:
            return None
        table = found.to_pyarrow_table()
    except DeltaError:
        return None
    spelled = {name.lower(): name for name in table.column_names}
    columns = [table.column(spelled[name.lower()]) for name in names]
    return list(zip(*[[_value(cell, column.type) for cell in column.to_pylist()] for column in columns], strict=True))


def append(place: Path, rows: list[tuple[Any, ...]], schema: str, properties: dict[str, str]) -> bool:
    """Add rows as one file and one version of a table, made where it is missing; False: that is left to Spark.

    It makes no version of no rows, and knows all types.
    """
    fields = T.StructType.fromDDL(schema).fields  # type: ignore[attr-defined]
    if not rows or not all(isinstance(field.dataType, SIMPLE) and field.nullable for field in fields):
        return False
    columns = arrow_schema(T.StructType(fields))
    made = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(columns.types)]
    table = pa.Table.from_arrays(made, schema=columns)
    write_deltalake(str(place), table, mode="append", configuration=None if place.exists() else dict(properties))
    return True


def _value(cell: Any, of: pa.DataType) -> Any:
    if isinstance(cell, datetime):
        return cell.replace(tzinfo=None)
    if pa.types.is_map(of) and cell is not None:
        return {key: _value(value, of.item_type) for key, value in cell}
    if isinstance(cell, dict):
        return Row(**{field.name: _value(cell[field.name], field.type) for field in of})
    if isinstance(cell, list):
        return [_value(value, of.value_type) for value in cell]
    return cell
