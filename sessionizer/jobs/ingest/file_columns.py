"""The columns of a file, fitted to those of the table: their names, their types, and what does not fit."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.ingest.lines import LINE, TORN, TORN_LINE
from sessionizer.jobs.ingest.time_formats import parse_time
from sessionizer.lib import columns as C
from sessionizer.lib.config import Source
from sessionizer.lib.config.types import first_repeated
from sessionizer.lib.errors import SourceError, UsageError

_COMPLEX = (T.StructType, T.ArrayType, T.MapType, T.VariantType)
_READ_AS_TEXT = (
    *(T.StringType, T.IntegralType, T.FloatType, T.DoubleType, T.BooleanType),
    *(T.DateType, T.TimestampType, T.TimestampNTZType),
)


@dataclass(frozen=True)
class FileColumn:
    """One column: its name in the file, its name and type in the table, and whether it is the event time.

    as_found: the type to read it as: with the names that fields within it have in the file; of texts that are to be
    decimals, text.
    """

    found: str
    name: str
    type: T.DataType
    is_time: bool = False
    as_found: T.DataType | None = None

    @property
    def json_type(self) -> T.DataType:
        """The type to read it as from JSON: text where a cast follows, which is as exact and says what failed."""
        return T.StringType() if self.is_time or isinstance(self.type, _READ_AS_TEXT) else self.as_found or self.type


def declare(found: T.StructType, declared: T.StructType, *, optional: bool) -> T.StructType:
    """The file's columns with the types that `--schema` declares for some; `optional`: others may be named too."""
    types = {f.name.lower(): f.dataType for f in declared.fields}
    names = {f.name.lower() for f in found.fields}
    absent = [f for f in declared.fields if f.name.lower() not in names]
    if absent and not optional:
        raise UsageError(
            "the schema names a column that the file does not have",
            value=absent[0].name,
            remedy=_the_file_has(found.fieldNames()),
        )
    fields = [T.StructField(f.name, types.get(f.name.lower(), f.dataType)) for f in found.fields]
    return T.StructType([*fields, *absent])


def one_of_each(found: T.StructType, wanted: Iterable[str]) -> tuple[T.StructType, tuple[str, ...]]:
    """Of fields whose names differ only in capitals the one that is wanted, else the one in small letters; the others.

    Errors: SourceError for such fields within a field.
    """
    known, chosen = set(wanted), dict[str, T.StructField]()
    for field in sorted(found.fields, key=lambda field: (field.name in known, field.name)):
        chosen[field.name.lower()] = field
        if (double := _doubled(field.dataType)) is not None:
            raise SourceError(
                f"fields within {field.name} must not differ only in capitals",
                value=double,
                remedy="mend the lines that have one of the two",
            )
    kept = [field for field in found.fields if chosen[field.name.lower()] is field]
    return T.StructType(kept), tuple(field.name for field in found.fields if field not in kept)


def _doubled(data_type: T.DataType) -> str | None:
    match data_type:
        case T.StructType():
            names = [name.lower() for name in data_type.fieldNames()]
            twice = (f.name for f in data_type.fields if names.count(f.name.lower()) > 1)
            within = (name for f in data_type.fields if (name := _doubled(f.dataType)) is not None)
            return next(twice, None) or next(within, None)
        case T.ArrayType():
            return _doubled(data_type.elementType)
    return None


def renamed(names: Sequence[str], rename: Mapping[str, str], *, optional: bool) -> list[str]:
    """The names after renaming; no two may be equal. `optional`: what is to be renamed may be absent."""
    new = {old.lower(): name for old, name in rename.items()}
    known = {name.lower() for name in names}
    for old in rename:
        if old.lower() not in known and not optional:
            raise UsageError("a column to rename must be in the file", value=old, remedy=_the_file_has(names))
    result = [new.get(name.lower(), name) for name in names]
    if twice := first_repeated(result):
        raise SourceError("a file must name each column once", value=twice, remedy="rename one of them in the file")
    return result


def time_column(event_time: str, names: Iterable[str]) -> str | None:
    """The column that `source.event_time` names, whether or not it is among these; None for an expression."""
    plain = event_time[1:-1] if re.fullmatch(r"`[^`]+`", event_time) else event_time
    for name in names:
        if name.lower() == plain.lower():
            return name
    return plain if plain != event_time or re.fullmatch(r"[^\W\d]\w*", plain) else None


def require_used(names: Sequence[str], source: Source, file: str) -> None:
    """Raise a SourceError if a key column, or a plain event_time column, is not among these names."""
    known = {name.lower() for name in names}
    time = time_column(source.event_time, names)
    used = [("source.key", key) for key in source.key]
    used += [("source.event_time", time)] if time is not None else []
    for field, name in used:
        if name.lower() not in known:
            raise SourceError(
                f"{file} lacks a column that {field} names",
                value=name,
                remedy=f"{_the_file_has(names)}; --rename OLD={name} gives one this name",
            )


def fit(columns: Sequence[FileColumn], table: T.StructType, *, add_columns: bool) -> list[FileColumn]:
    """The columns with the names and types of the table's, where it has them.

    Errors: SourceError for new columns, or new fields within one, unless they are to be added.
    """
    known = {f.name.lower(): f for f in table.fields}
    fitted, new = [], []
    for column in columns:
        field = known.get(column.name.lower())
        fits = column if field is None else _fitted(column, field)
        if field is None or fits.type != field.dataType:
            new.append(column.name)
        fitted.append(fits)
    if new and not add_columns:
        raise SourceError(
            "the file has columns, or fields within them, that the table does not have",
            value=", ".join(new),
            remedy="add them to the table with --add-columns, or give one another name with --rename OLD=NEW",
        )
    return fitted


def conform(parsed: DataFrame, columns: Sequence[FileColumn], time_format: str) -> DataFrame:
    """The columns under the table's names and types; a row with a value that does not fit its type is torn.

    In: `__line`, `__torn` and the columns as found. Out: the columns, and `__torn_line` (null for good rows).
    A blank text is null in a column of another type.
    """
    types = {f.name: f.dataType for f in parsed.schema.fields}
    values, misfits = [], []
    for column in columns:
        given, given_type = C.col(column.found), types[column.found]
        value = _converted(given, given_type, column, time_format)
        values.append(value.alias(column.name))
        if value is not given:
            blank = F.trim(given) == "" if isinstance(given_type, T.StringType) else given.isNull()
            misfits.append(value.isNull() & ~blank)
    torn = reduce(or_, misfits, C.col(TORN))
    return parsed.select(*values, F.when(torn, C.col(LINE)).alias(TORN_LINE))


def _converted(given: Column, given_type: T.DataType, column: FileColumn, time_format: str) -> Column:
    if column.is_time:
        given, given_type = parse_time(given, given_type, time_format), T.TimestampType()
    if given_type == column.type or (isinstance(given_type, _COMPLEX) and isinstance(column.type, _COMPLEX)):
        return given  # Delta fits the fields within a column by their names, which no cast does
    return given.try_cast(column.type)


def _fitted(column: FileColumn, field: T.StructField) -> FileColumn:
    wide = _widened(field.dataType, column.type)
    return replace(column, name=field.name, type=wide, as_found=column.as_found or read_as(wide, column.type))


def read_as(wanted: T.DataType, found: T.DataType) -> T.DataType:
    """The type to read a column as from JSON: a text is made a decimal by a cast, to which a blank one is null."""
    is_text = isinstance(wanted, T.DecimalType) and isinstance(found, T.StringType)
    return found if is_text else _as_found(wanted, found)


def _as_found(wanted: T.DataType, found: T.DataType) -> T.DataType:
    """The wanted type with the names that its fields have in the found one: JSON is read by exact names."""
    match wanted, found:
        case T.StructType(), T.StructType():
            inner = {f.name.lower(): f for f in found.fields}
            named = [(f, inner.get(f.name.lower(), f)) for f in wanted.fields]
            return T.StructType([T.StructField(i.name, _as_found(f.dataType, i.dataType)) for f, i in named])
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(_as_found(wanted.elementType, found.elementType))
        case T.MapType(), T.MapType():
            return T.MapType(wanted.keyType, _as_found(wanted.valueType, found.valueType))
        case _:
            return wanted


def _widened(known: T.DataType, found: T.DataType) -> T.DataType:
    """The known type and what fields the found one has beyond it."""
    match known, found:
        case T.StructType(), T.StructType():
            inner = {f.name.lower(): f for f in found.fields}
            names = {f.name.lower() for f in known.fields}
            fields = [
                T.StructField(f.name, _widened(f.dataType, inner[f.name.lower()].dataType), f.nullable, f.metadata)
                if f.name.lower() in inner
                else f
                for f in known.fields
            ]
            return T.StructType([*fields, *(f for f in found.fields if f.name.lower() not in names)])
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(_widened(known.elementType, found.elementType), known.containsNull)
        case T.MapType(), T.MapType():
            return T.MapType(known.keyType, _widened(known.valueType, found.valueType), known.valueContainsNull)
        case _:
            return known


def _the_file_has(names: Iterable[str]) -> str:
    return f"the file has: {', '.join(names) or 'no columns'}"
