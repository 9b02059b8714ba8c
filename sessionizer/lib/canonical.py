"""Canonical forms: one JSON text per row for its hash, one byte string per key for its id."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C

JSON_OPTIONS = {
    "ignoreNullFields": "true",  # so that a column the source gains later does not change the hash of older rows
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# Else Spark takes a column that is called _corrupt_record for what could not be read.
READING_OPTIONS = {**JSON_OPTIONS, "columnNameOfCorruptRecord": "__corrupt"}
ID_LENGTH = 32  # hex digits: 128 bits
Told = Callable[[Column, T.DataType], Column]


def canonical_json(schema: T.StructType) -> Column:
    """The columns of a row as one JSON text: by name, without nulls, times to the microsecond, map keys sorted."""
    by_name = sorted(schema.fields, key=lambda field: field.name)
    ordered = [for_json(C.col(f.name), f.dataType).alias(f.name) for f in by_name]
    return F.to_json(F.struct(*ordered), JSON_OPTIONS)


def from_canonical_json(text: Column, schema: T.StructType) -> Column:
    """The row, as a struct, that `canonical_json` has told. Spark reads maps from JSON by keys of text alone."""
    read = F.from_json(text, _with_text_keys(schema), READING_OPTIONS)
    return F.struct(*[_with_maps(read[f.name], f.dataType, _with_own_keys).alias(f.name) for f in schema.fields])


def _with_text_keys(data_type: T.DataType) -> Any:
    match data_type:
        case T.MapType():
            return T.MapType(T.StringType(), _with_text_keys(data_type.valueType))
        case T.ArrayType():
            return T.ArrayType(_with_text_keys(data_type.elementType))
        case T.StructType():
            return T.StructType([T.StructField(f.name, _with_text_keys(f.dataType)) for f in data_type.fields])
        case _:
            return data_type


def _with_own_keys(value: Column, of: T.MapType) -> Column:
    values = F.transform_values(value, lambda _, one: _with_maps(one, of.valueType, _with_own_keys))
    return F.transform_keys(values, lambda key, _: _own_key(key, of.keyType))


def _own_key(key: Column, data_type: T.DataType) -> Column:
    """A key as Spark writes it: times as numbers since the epoch."""
    match data_type:
        case T.DateType():
            return F.date_from_unix_date(key.cast("int"))
        case T.TimestampType() | T.TimestampNTZType():
            return F.timestamp_micros(key.cast("bigint")).cast(data_type)
        case T.BinaryType():
            return F.coalesce(F.try_to_binary(key, F.lit("base64")), key.cast("binary"))  # of an older release: no key
        case T.StructType() | T.ArrayType():
            return F.from_json(key, T.StructType([T.StructField("key", data_type)]), READING_OPTIONS)["key"]
        case _:
            return key.cast(data_type)


def _key_for_json(key: Column, data_type: T.DataType) -> Column:
    """A key that Spark writes by its content: of bytes, structs and arrays it writes where they lie in memory."""
    match data_type:
        case T.BinaryType():
            return F.base64(key)
        case T.StructType() | T.ArrayType():
            return F.to_json(F.struct(key.alias("key")), JSON_OPTIONS)
        case _:
            return key


def from_text(text: Column, data_type: T.DataType) -> Column:
    """The text as a value of the type; null if it is none, or a decimal of more digits than it holds."""
    value = text.try_cast(data_type)
    if not isinstance(data_type, T.DecimalType):
        return value
    return F.when(~text.rlike(rf"\.\d{{{data_type.scale}}}0*[1-9]|[eE]-"), value)


def sorted_maps(value: Column, data_type: T.DataType) -> Column:
    """The value with the entries of its maps in the order of their keys."""
    return _with_maps(value, data_type, lambda one, of: _sorted_map(one, of, lambda key, _: key, sorted_maps))


def for_json(value: Column, data_type: T.DataType) -> Column:
    """The same with keys that JSON tells by their content."""
    return _with_maps(value, data_type, lambda one, of: _sorted_map(one, of, _key_for_json, for_json))


def _sorted_map(value: Column, of: T.MapType, key: Told, inner: Told) -> Column:
    def entry(one: Column) -> Column:
        return F.struct(key(one["key"], of.keyType).alias("key"), inner(one["value"], of.valueType).alias("value"))

    entries = F.array_sort(F.map_entries(value), lambda a, b: compared(a["key"], b["key"]))
    return F.map_from_entries(F.transform(entries, entry))


def _with_maps(value: Column, data_type: T.DataType, made: Callable[[Column, T.MapType], Column]) -> Column:
    """The value, and what is `made` of each map in it; maps within maps are left to that."""
    match data_type:
        case T.MapType():
            return made(value, data_type)
        case T.ArrayType() if holds_map(data_type.elementType):
            return F.transform(value, lambda element: _with_maps(element, data_type.elementType, made))
        case T.StructType() if holds_map(data_type):
            whole = value
            for f in data_type.fields:  # by which Spark still reads no more parts of it than are asked for
                if holds_map(f.dataType):
                    whole = whole.withField(C.quoted(f.name), _with_maps(value[f.name], f.dataType, made))
            return whole
        case _:
            return value


def compared(a: Column, b: Column) -> Column:
    """-1, 0 or 1, for `array_sort`."""
    return F.when(a < b, -1).when(a > b, 1).otherwise(0)


def holds_map(data_type: T.DataType) -> bool:
    """Whether values of this type hold maps, which Spark does not compare."""
    match data_type:
        case T.MapType():
            return True
        case T.ArrayType():
            return holds_map(data_type.elementType)
        case T.StructType():
            return any(holds_map(f.dataType) for f in data_type.fields)
        case _:
            return False


def session_id(key: list[Column], key_types: list[T.DataType], start_us: Column, salt: Column | None = None) -> Column:
    """The first 32 hex digits of SHA-256 over the key and the session's start (SEMANTICS §9).

    Each key column is written as tag, length in bytes, ':' and value (`s5:alice`), a null as `n`, and the start in
    microseconds behind '@': no two (key, start) pairs share a text, whatever the values hold. Integers of
    any width share a tag, so that widening a column keeps the ids. `salt`: text that follows, null = nothing.
    """
    parts = [_tagged(k, t) for k, t in zip(key, key_types, strict=True)]
    salted = [] if salt is None else [F.coalesce(salt, F.lit(""))]
    return F.sha2(F.concat(*parts, F.lit("@"), start_us.cast("string"), *salted), 256).substr(1, ID_LENGTH)


def _tagged(value: Column, key_type: T.DataType) -> Column:
    match key_type:
        case T.StringType():
            tag, text = "s", value
        case T.IntegralType():
            tag, text = "i", value.cast("string")
        case T.DecimalType():
            tag, text = "d", value.cast("string")
        case T.FloatType() | T.DoubleType():
            tag, text = "f", (value.cast("double") + F.lit(0.0)).cast("string")  # -0.0 is 0.0
        case T.BooleanType():
            tag, text = "b", value.cast("string")
        case T.BinaryType():
            tag, text = "x", F.hex(value)
        case T.DateType():
            tag, text = "D", value.cast("string")
        case _:
            tag, text = "t", F.unix_micros(value.cast("timestamp")).cast("string")
    tagged = F.concat(F.lit(tag), F.octet_length(text).cast("string"), F.lit(":"), text)
    return F.coalesce(tagged, F.lit("n"))


def with_nulls(value: Column, of: T.DataType) -> Column:
    """The value, with what tells where nulls lie within it, and how many values there are: a hash passes over nulls."""
    match of:
        case T.StructType():  # of which two parts may have one name
            kinds = {f"_{number}": _may_be_null(f.dataType) for number, f in enumerate(of.fields)}
            parts = value.cast(T.StructType([T.StructField(name, kind) for name, kind in kinds.items()]))
            return F.struct(*[_told_apart(parts[name], kind).alias(name) for name, kind in kinds.items()])
        case T.ArrayType():
            return F.struct(F.size(value), F.transform(value, lambda one: _told_apart(one, of.elementType)))
    return value


def _may_be_null(of: T.DataType) -> T.DataType:
    """The type, in which each part may be null, as rows of one table have it in some ways of reading."""
    match of:
        case T.StructType():
            return T.StructType([T.StructField(f.name, _may_be_null(f.dataType)) for f in of.fields])
        case T.ArrayType():
            return T.ArrayType(_may_be_null(of.elementType))
    return of


def _told_apart(value: Column, of: T.DataType) -> Column:
    return F.struct(value.isNull(), with_nulls(value, of))
