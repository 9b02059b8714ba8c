"""Columns that hold objects: their types, in the file and in the table, and the ways to fields within them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.ingest.lines import LINE, names_once
from sessionizer.lib import columns as C
from sessionizer.lib.errors import UsageError
from sessionizer.lib.expressions import fields_within

READING = {"mode": "DROPMALFORMED", "lineSep": "\n", "encoding": "UTF-8"}


def inferred(lines: DataFrame, copy: Path) -> tuple[T.StructType, Column | None]:
    """The columns of a file of json; and where lines have a name twice, which lines do not: they alone tell columns.

    Where such a line is no json to the letter, no line is that is none: nobody can tell them. copy: the file.
    """
    if (found := _schema(lines, copy)) is not None:
        return found, None
    folder, once = copy.with_name(f"{copy.name}-once"), names_once(C.col(LINE))
    lines.where(once).select(LINE).write.text(folder.as_uri())
    if (found := _schema(lines, folder)) is not None:
        return found, once
    folder, strict = copy.with_name(f"{copy.name}-strict"), F.try_parse_json(C.col(LINE)).isNotNull()
    lines.where(strict).select(LINE).write.text(folder.as_uri())
    return _schema(lines, folder) or T.StructType([]), strict


def _schema(lines: DataFrame, place: Path) -> T.StructType | None:
    """The columns that Spark finds there; None: a line has a name twice."""
    try:
        return lines.sparkSession.read.options(**READING).json(place.as_uri()).schema
    except AnalysisException as error:
        if error.getCondition() != "COLUMN_ALREADY_EXISTS":
            raise
    return None


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
    objects = values.where(looks_so).withColumnRenamed("value", LINE)
    objects.write.text(folder.as_uri())
    if (kind := inferred(objects, folder)[0]).fields:
        return kind
    return reduce(widened, map(_struct, ways)) if values.where(~looks_so).isEmpty() else None


def _struct(way: list[str]) -> T.DataType:
    """The type of an object that holds a text at the end of this way."""
    text: T.DataType = T.StringType()
    return reduce(lambda inner, name: T.StructType([T.StructField(name, inner)]), reversed(way), text)


def as_known(columns: T.StructType, table: T.StructType, rename: Mapping[str, str]) -> T.StructType:
    """The columns, but those that hold objects in the table have their fields, whatever a file has there."""
    new = {old.lower(): name for old, name in rename.items()}
    structs = {f.name.lower(): f.dataType for f in table.fields if isinstance(f.dataType, T.StructType)}
    kinds = [(f, structs.get(new.get(f.name.lower(), f.name).lower(), f.dataType)) for f in columns.fields]
    return T.StructType([T.StructField(f.name, widened(kind, f.dataType)) for f, kind in kinds])


def require_objects(
    columns: T.StructType,
    declared: T.StructType,
    found: T.StructType,
    rename: Mapping[str, str],
    known: Sequence[str] = (),
) -> None:
    """Raise unless `--schema` gives types to whole columns, and the old names of `--rename` reach into objects.

    columns: as they will be read, under the names of the file. known: those of the table; what is none there need be
    none here.
    Errors: UsageError.
    """
    own, within = {name.lower() for name in found.fieldNames()}, {path.lower() for path in fields_within(columns)}
    for name in declared.fieldNames():
        if name.lower() in within - own:
            first, *_, last = name.split(".")
            raise UsageError(
                "the schema must give types to whole columns, not to a field within one",
                value=name,
                remedy=f"write all fields of the column: --schema '{first} struct<{last}: string, …>'",
            )
    there = {*within, *(name.lower() for name in columns.fieldNames())}
    for name, new in rename.items():
        if there.isdisjoint((name.lower(), new.lower())) and (text := _no_object(columns, name)) is not None:
            if {text.lower(), new.lower()} <= {column.lower() for column in known}:
                continue
            raise UsageError(
                "a field to rename must lie in an object",
                value=name,
                remedy=f"in this file {text} is none; if it should be, say so: --schema '{text} struct<…>'",
            )


def _no_object(columns: T.StructType, path: str) -> str | None:
    """The column, or field, that a path leads into although it holds no fields."""
    here: T.DataType = columns
    names = path.lower().split(".")
    for n, name in enumerate(names):
        if not isinstance(here, T.StructType):
            return ".".join(names[:n])
        inner = next((f.dataType for f in here.fields if f.name.lower() == name), None)
        if inner is None:
            return None
        here = inner
    return None


def as_found(wanted: T.DataType, found: T.DataType) -> T.DataType:
    """The wanted type with the names that its fields have in the found one: JSON is read by exact names."""
    match wanted, found:
        case T.StructType(), T.StructType():
            inner = {f.name.lower(): f for f in found.fields}
            named = [(f, inner.get(f.name.lower(), f)) for f in wanted.fields]
            return T.StructType([T.StructField(i.name, as_found(f.dataType, i.dataType)) for f, i in named])
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(as_found(wanted.elementType, found.elementType))
        case T.MapType(), T.MapType():
            return T.MapType(wanted.keyType, as_found(wanted.valueType, found.valueType))
        case _:
            return wanted


def widened(known: T.DataType, found: T.DataType) -> T.DataType:
    """The known type and what fields the found one has beyond it."""
    match known, found:
        case T.StructType(), T.StructType():
            inner = {f.name.lower(): f for f in found.fields}
            names = {f.name.lower() for f in known.fields}
            fields = [
                T.StructField(f.name, widened(f.dataType, inner[f.name.lower()].dataType), f.nullable, f.metadata)
                if f.name.lower() in inner
                else f
                for f in known.fields
            ]
            return T.StructType([*fields, *(f for f in found.fields if f.name.lower() not in names)])
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(widened(known.elementType, found.elementType), known.containsNull)
        case T.MapType(), T.MapType():
            return T.MapType(known.keyType, widened(known.valueType, found.valueType), known.valueContainsNull)
        case T.NullType(), _:  # a column that others have made of no type
            return found
        case _:
            return known
