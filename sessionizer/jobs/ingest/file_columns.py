"""The columns of a file, fitted to those of the table: their names, their types, and what does not fit."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.ingest.lines import LINE, NUMBER, TORN, torn_by
from sessionizer.jobs.ingest.objects import as_found, widened
from sessionizer.jobs.ingest.time_formats import DATED, ISO, in_years, of_time, parse_time, sane
from sessionizer.lib import columns as C
from sessionizer.lib.errors import SourceError, UsageError
from sessionizer.lib.expressions import nearest

_COMPLEX = (T.StructType, T.ArrayType, T.MapType, T.VariantType)
_OF_LENGTH = re.compile(r'("(?:type|elementType|keyType|valueType)":)"(?:var)?char\(\d+\)"')
_READ_AS_TEXT = (
    *(T.StringType, T.IntegralType, T.FloatType, T.DoubleType, T.BooleanType),
    *(T.DateType, T.TimestampType, T.TimestampNTZType),
)
_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
_MOST_DIGITS = 38  # of a decimal
_NOISE = 1e-12  # of a DOUBLE, as a share of it
_UNSEEN = 0.01  # of the last digit of a decimal
_WITH_OFFSET = r":\d.*([A-Za-z]|[+-]\d)"
# What is larger than any whole number of a type: Spark takes this for the largest, which as such a number it is.
_BEYOND = {T.ByteType: 2.0**7, T.ShortType: 2.0**15, T.IntegerType: 2.0**31, T.LongType: 2.0**63}
_PLACES = T.DecimalType(38, 18)
# Of no more digits than _PLACES has, so that it holds what is said; with E where json has had it as a large DOUBLE.
_WITH_POINT = r"(?i)^\s*[+-]?\d{1,20}\.\d{0,18}(e\+?\d{1,2})?\s*$"
_EXACT = 2**52  # from here on a DOUBLE has no fraction, whatever was said
# What Java takes for a number beside these, 30d or 0x1p3, is none; a bare NaN of JSON arrives in quotes.
_DIGITS = r"^[\x00-\x20]*[+-]?\d+[\x00-\x20]*$"
_NUMBER = r"(?i)^[\x00-\x20]*([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?nan|\"nan\")[\x00-\x20]*$"
_INFINITE = r"(?i)^\s*[+-]?inf(inity)?\s*$"
_TIME_OF_DAY, _MIDNIGHT = r"\d[T ]+\S", r"\d[T ]+0?0:00(:00(\.0*)?)?\s*(Z|UTC|GMT|[+-][\d:]+)?\s*$"


@dataclass(frozen=True)
class FileColumn:
    """One column: its name in the file, its name and type in the table, and whether it is the event time.

    as_found: the type to read it as: with the names that fields within it have in the file; of a decimal text, or one
    of more digits. way: to a field within a column, which it is a copy of. text: what the table calls it where that
    takes texts of so many letters alone, VARCHAR(n) or CHAR(n).
    """

    found: str
    name: str
    type: T.DataType
    is_time: bool = False
    as_found: T.DataType | None = None
    way: tuple[str, ...] = ()
    text: str = ""

    @property
    def given(self) -> Column:
        """The value as the file has it."""
        first, *others = self.way or (self.found,)
        return reduce(Column.getField, others, C.col(first))

    @property
    def json_type(self) -> T.DataType:
        """The type to read it as from JSON: text where a cast follows, which is as exact and says what failed."""
        return T.StringType() if self.is_time or isinstance(self.type, _READ_AS_TEXT) else self.as_found or self.type


def declared_types(schema: str) -> T.StructType:
    """What `--schema` says, texts of so many letters as texts: that is a rule of a table's. Errors: UsageError."""
    if not schema:
        return T.StructType([])
    try:
        told = T.StructType.fromDDL(schema).json()
    except PySparkException as error:
        raise UsageError(
            "the schema must be columns and their types, in SQL",
            value=schema,
            remedy="write it like 'amount double, paid boolean'",
        ) from error
    return T.StructType.fromJson(json.loads(_OF_LENGTH.sub(r'\1"string"', told)))


def declare(found: T.StructType, declared: T.StructType, *, optional: bool) -> T.StructType:
    """The file's columns with the types that `--schema` declares for some; `optional`: others may be named too."""
    types = {f.name.lower(): f.dataType for f in declared.fields}
    names = {f.name.lower() for f in found.fields}
    absent = [f for f in declared.fields if f.name.lower() not in names]
    if absent and not optional:
        raise UsageError(
            "the schema names a column that the file does not have",
            value=absent[0].name,
            remedy=nearest(absent[0].name, found.fieldNames(), whose="the file"),
        )
    fields = [T.StructField(f.name, types.get(f.name.lower(), f.dataType)) for f in found.fields]
    return T.StructType([*fields, *absent])


def of_a_type(columns: Sequence[FileColumn], table: T.StructType | None, config: str) -> list[FileColumn]:
    """Those that have one: what is all null, and of none, comes to no table that has it not.

    Errors: SourceError for one that the text of the config names, without which the table would be made.
    """
    there = {name.lower() for name in (table.names if table is not None else ())}
    lacking = [c for c in columns if isinstance(c.type, T.NullType) and c.name.lower() not in there]
    used = [c.found for c in lacking if table is None and re.search(rf"(?i)(?<!\w){re.escape(c.name)}(?!\w)", config)]
    if used:
        raise SourceError(
            "a column that the config names is all null in the file, so that nobody knows its type",
            value=", ".join(used),
            remedy=f"say it: --schema '{', '.join(f'{C.quoted(name)} string' for name in used)}', if it is a text",
        )
    return [c for c in columns if c not in lacking]


def fit(
    columns: Sequence[FileColumn], table: T.StructType, declared: T.StructType, *, add_columns: bool
) -> list[FileColumn]:
    """The columns with the names and types of the table's, where it has them.

    declared: what `--schema` says. Errors: SourceError for new columns, or new fields within one, unless they are to
    be added; UsageError where another type is declared than the table has.
    """
    known = {f.name.lower(): f for f in table.fields}
    _require_types(columns, known, {name.lower() for name in declared.fieldNames()})
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


def _require_types(
    columns: Sequence[FileColumn], known: Mapping[str, T.StructField], declared: Collection[str]
) -> None:
    """Raise unless declared types are those of the table; objects get their fields later, times are of one type."""
    for column in (c for c in columns if c.found.lower() in declared and not c.is_time):
        field = known.get(column.name.lower())
        if field is None or field.dataType in (column.type, T.NullType()):
            continue
        if not (isinstance(field.dataType, _COMPLEX) and isinstance(column.type, _COMPLEX)):
            raise UsageError(
                "the schema gives a column another type than the table has",
                value=f"{column.found} {column.type.simpleString()}",
                remedy=f"in the table it is {field.dataType.simpleString()}: say so, or leave it out of --schema",
            )


def conform(parsed: DataFrame, columns: Sequence[FileColumn], time_format: str) -> DataFrame:
    """The columns under the table's names and types; a row with a value that does not fit its type is torn by it.

    In: `__line`, `__number`, `__torn` and the columns as found. Out: the columns, and `__torn`, to which line and
    number have been added. A blank text is null in a column of another type; a value that would not come back as it
    was (`fitting`) does not fit.
    """
    types = {c.found: parsed.select(c.given).schema.fields[0].dataType for c in columns if c.way}
    types |= {f.name: f.dataType for f in parsed.schema.fields}
    values, torn = [], [C.col(TORN)]
    for column in columns:
        given, given_type = column.given, types[column.found]
        value = _converted(given, given_type, column, time_format)
        values.append(value.alias(column.name))
        if value is not given:
            may_be_blank = isinstance(given_type, T.StringType) and not column.text
            blank = F.trim(given) == "" if may_be_blank else given.isNull()
            named = (column.text or column.type.simpleString()).upper()
            kind = f"time by the format {time_format}" if column.is_time else named
            said = F.regexp_replace(given.cast("string"), r"(?<=\.)0+$|(?<=\.\d{0,36}[1-9])0+$", "")
            shown = said if isinstance(given_type, T.DecimalType) else given
            torn.append(F.when(value.isNull() & ~blank, torn_by(f"no {kind}", column.found, shown)))
    why = F.coalesce(*torn).alias(TORN)
    fitted = parsed.select(*values, C.col(LINE), C.col(NUMBER), why)
    told = F.when(C.col(TORN).isNotNull(), F.struct(C.col(LINE), C.col(NUMBER), C.col(TORN)))
    return fitted.withColumn(TORN, told).drop(LINE, NUMBER)


def _converted(given: Column, given_type: T.DataType, column: FileColumn, time_format: str) -> Column:
    if column.is_time:
        given, given_type = parse_time(given, given_type, time_format), T.TimestampType()
    if given_type == column.type and isinstance(given_type, _TIMES):
        return of_time(given, given_type)
    if given_type == column.type or (isinstance(given_type, _COMPLEX) and isinstance(column.type, _COMPLEX)):
        value = given  # Delta fits the fields within a column by their names, which no cast does
    else:
        value = fitting(given, given_type, column.type)
    return _not_longer(value, column.text) if column.text else value


def _not_longer(value: Column, text: str) -> Column:
    """A text of no more letters than VARCHAR(n) or CHAR(n) takes; spaces at its end count, as for Delta."""
    return F.when(F.length(value) <= int(text.partition("(")[2].rstrip(")")), value)


def fitting(given: Column, found: T.DataType, wanted: T.DataType) -> Column:
    """The value as the wanted type; null where it is none, or would not come back as it was.

    No BIGINT holds 1.5 (2.0 it does), no DATE 10 o'clock, no DECIMAL(10,2) 19.999; and whether a number that is to be a
    time counts seconds or milliseconds nobody has said. A text or a decimal that is to be a DOUBLE is as near to it as
    that can be, unless it is a whole number, and a DOUBLE that is to be a FLOAT.
    """
    given = sane(given) if isinstance(found, T.StringType) and isinstance(wanted, T.NumericType) else given
    value = given.try_cast(wanted)
    match found, wanted:
        case T.NumericType(), _ if isinstance(wanted, _TIMES):
            return F.lit(None).cast(wanted)
        case _, T.NumericType() if isinstance(found, _TIMES):
            return F.lit(None).cast(wanted)
        case T.StringType(), T.DecimalType():
            return F.when(_has_no_more_digits(given, value, wanted), value)
        case T.StringType(), T.DateType():
            is_day = ~given.rlike(_TIME_OF_DAY) | given.rlike(_MIDNIGHT)
            return F.when(given.rlike(DATED) & is_day, in_years(value))
        case T.StringType(), T.TimestampType():
            return parse_time(given, found, ISO)
        case T.StringType(), T.TimestampNTZType():  # of 10:30 Spark makes a time of today
            return F.when(given.rlike(DATED) & ~given.rlike(_WITH_OFFSET), in_years(value))
        case T.StringType(), T.IntegralType():  # 2.0, which is how many write a column that has a null
            number = F.when(given.rlike(_WITH_POINT), given).try_cast(_PLACES)
            whole = number.try_cast(wanted)
            is_sure = ~F.contains(F.lower(given), F.lit("e")) | (F.abs(number) < _EXACT)
            return F.coalesce(value, F.when((whole == number) & is_sure, whole))
        case T.NumericType(), T.NumericType():
            return _of_number(given, value, found, wanted)
        case T.StringType(), T.FloatType() | T.DoubleType():
            number = F.translate(given, '"', "").try_cast(wanted)
            is_number = given.rlike(_NUMBER) & _is_finite(number) & (~given.rlike(_DIGITS) | _is_exact(given, number))
            return F.when(is_number | given.rlike(_INFINITE), number)
        case (T.StringType() | T.NullType(), _) | (_, T.StringType()):
            return value
    return of_time(F.when(value.try_cast(found).eqNullSafe(given), value), wanted)


def _of_number(given: Column, value: Column, found: T.NumericType, wanted: T.NumericType) -> Column:
    """A number as one of another type, as near as that can be; null where it is not. value: what a cast makes of it."""
    match found, wanted:
        case T.DoubleType(), T.DecimalType():  # 59.97000000000001 is what a DOUBLE has of 59.97
            noise = F.least(F.abs(given) * _NOISE, F.lit(_UNSEEN * 10.0**-wanted.scale))
            return F.when(F.abs(value.cast("double") - given) <= noise, value)
        case T.FloatType(), T.DecimalType():
            return F.when(value.cast(found).eqNullSafe(given), value)
        case T.DecimalType(), T.FloatType() | T.DoubleType():
            return F.when(_is_finite(value) & ((given % 1 != 0) | _is_exact(given, value)), value)
        case T.DoubleType(), T.FloatType():
            return F.when(_is_finite(value) | ~_is_finite(given), value)
        case (T.FloatType() | T.DoubleType(), T.IntegralType()):
            value = F.when(given < _BEYOND[type(wanted)], value)
        case (T.IntegralType(), T.FloatType() | T.DoubleType()):
            value = F.when(value < _BEYOND[type(found)], value)
    return F.when(value.try_cast(found).eqNullSafe(given), value)


def _is_finite(number: Column) -> Column:
    """Whether a number is not beyond what its type holds, nor said to be; NaN is neither."""
    return F.abs(number) != F.lit(float("inf"))


def _is_exact(text: Column, number: Column) -> Column:
    """Whether a text of digits comes back as it was from the number that is made of it."""
    whole = T.DecimalType(_MOST_DIGITS, 0)
    return F.coalesce(number.try_cast(whole) == text.try_cast(whole), F.lit(False))


def _has_no_more_digits(text: Column, value: Column, wanted: T.DecimalType) -> Column:
    """Whether a decimal of this type is all of a text: zeros at its end do not count."""
    beyond = rf"^[^eE]*\.\d{{{wanted.scale}}}\d*[1-9][^eE]*$"  # finer than any; what has an exponent is not
    return value.eqNullSafe(text.try_cast(_finer(wanted))) & ~text.rlike(beyond)


def _finer(wanted: T.DecimalType) -> T.DecimalType:
    """With as many digits before the point, and as many behind it as there may be."""
    return T.DecimalType(_MOST_DIGITS, _MOST_DIGITS - wanted.precision + wanted.scale)


def _fitted(column: FileColumn, field: T.StructField) -> FileColumn:
    wide = widened(field.dataType, column.type)
    found = column.as_found or read_as(wide, column.type)
    # Of what holds such texts within the metadata says its whole type: these are Delta's to refuse.
    text = str(field.metadata.get(C.LENGTH, "")) if isinstance(field.dataType, T.StringType) else ""
    return replace(column, name=field.name, type=wide, as_found=found, text=text)


def read_as(wanted: T.DataType, found: T.DataType) -> T.DataType:
    """The type to read a column as from JSON: of decimals text, of which a blank one is null, or one that tells all."""
    if isinstance(wanted, T.DecimalType):
        return found if isinstance(found, T.StringType) else _finer(wanted)
    return as_found(wanted, found)
