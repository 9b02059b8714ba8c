"""Columns that were renamed, dropped, retyped, or came later: what they are in the files tells which is which."""

from collections.abc import Callable, Iterator

from pyspark.sql import types as T

# By the type of the other files have values; `overwriteSchema` leaves them as they are.
ALIKE = (
    *({of, T.BinaryType} for of in (T.StringType, T.DecimalType)),
    {T.TimestampNTZType, T.TimestampType},
    *({of, T.LongType} for of in (T.TimestampType, T.TimestampNTZType)),
    *({T.DateType, of} for of in (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DoubleType)),
)
PHYSICAL = "delta.columnMapping.physicalName"  # what a column is called in the files, whatever it is renamed to


def every_name(kind: T.DataType) -> Iterator[str]:
    """The names of columns, and of all that lies within them."""
    match kind:
        case T.StructType():
            for field in kind.fields:
                yield field.name
                yield from every_name(field.dataType)
        case T.ArrayType():
            yield from every_name(kind.elementType)
        case T.MapType():
            yield from (*every_name(kind.keyType), *every_name(kind.valueType))


def bare(data_type: T.DataType) -> T.DataType:
    """A type as it is compared here: names, types, and names in the files. A collation makes no other values."""
    match data_type:
        case T.StringType():
            return T.StringType()
        case T.StructType():
            return bare_columns(data_type)
        case T.ArrayType():
            return T.ArrayType(bare(data_type.elementType))
        case T.MapType():
            return T.MapType(bare(data_type.keyType), bare(data_type.valueType))
    return data_type


def bare_columns(columns: T.StructType) -> T.StructType:
    """The same of columns."""
    named = [(f, {PHYSICAL: f.metadata[PHYSICAL]} if PHYSICAL in f.metadata else {}) for f in columns.fields]
    return T.StructType([T.StructField(f.name, bare(f.dataType), True, metadata) for f, metadata in named])


def by_file(before: T.StructType, after: T.StructType) -> tuple[dict[str, T.StructField], dict[str, T.StructField]]:
    """The columns of both by what they are called in the files; one that has no other name there any more, as today.

    Its files were written anew then. Capitals of a name tell nothing apart.
    """
    bare_now = {field.name.lower() for field in after.fields if PHYSICAL not in field.metadata}
    then = {name if (name := field.name.lower()) in bare_now else met_by(field): field for field in before.fields}
    return then, {met_by(field): field for field in after.fields}


def physical(field: T.StructField) -> str:
    """What a column is called in the files."""
    return str(field.metadata.get(PHYSICAL, field.name))


def met_by(field: T.StructField) -> str:
    """What a column of before and one of today meet by: that name, whatever its capitals."""
    return physical(field).lower()


def is_told_otherwise(before: T.StructType, after: T.StructType) -> bool:
    """Whether rows of these columns have another text now; of a column that is new they have none. In: bare types.

    Columns are told by name, the parts of one in their order.
    """
    then, now = by_file(before, after)
    met = [(f, now.get(name)) for name, f in then.items()]
    return any(n is None or n.name != f.name or _is_other(f.dataType, n.dataType) for f, n in met)


def _is_other(before: T.DataType, after: T.DataType) -> bool:
    match before, after:
        case T.NullType(), _:  # nothing of it was ever told
            return False
        case T.StructType(), T.StructType():
            then, now = by_file(before, after)
            return [name for name in now if name in then] != list(then) or is_told_otherwise(before, after)
        case T.ArrayType(), T.ArrayType():
            return _is_other(before.elementType, after.elementType)
        case T.MapType(), T.MapType():
            return _is_other(before.keyType, after.keyType) or _is_other(before.valueType, after.valueType)
    return before != after


def is_replaced(was: T.StructField, now: T.StructField) -> bool:
    """Whether it is another column than the one of the same name before; where files were written anew it is not."""
    return PHYSICAL in now.metadata and met_by(was) != met_by(now)


def has_replaced(was: T.DataType, now: T.DataType) -> bool:
    """Whether a part of it is another than the one of the same name before. In: bare types."""

    def has(before: T.StructType, after: T.StructType) -> bool:
        then = {field.name.lower(): field for field in before.fields}
        met = [(then[f.name.lower()], f) for f in after.fields if f.name.lower() in then]
        return any(is_replaced(*both) or has_replaced(*(f.dataType for f in both)) for both in met)

    return _any_struct(was, now, has)


def has_lost(was: T.DataType, now: T.DataType) -> bool:
    """Whether it has lost parts, or has them otherwise named or ordered. In: bare types."""

    def has(before: T.StructType, after: T.StructType) -> bool:
        then, there = by_file(before, after)
        names = [(name, f.name) for name, f in there.items() if name in then]
        is_other = names != [(name, f.name) for name, f in then.items()]
        return is_other or any(has_lost(f.dataType, there[name].dataType) for name, f in then.items())

    return _any_struct(was, now, has)


def untold(before: T.StructType, after: T.StructType) -> list[str]:
    """The columns of after by whose type files tell other values than texts by that of before. In: bare types."""
    then, now = by_file(before, after)
    return [now[name].name for name, f in then.items() if name in now and _is_untold(f.dataType, now[name].dataType)]


def _is_untold(was: T.DataType, now: T.DataType) -> bool:
    def differs(one: T.DataType, other: T.DataType) -> bool:
        is_scaled = isinstance(one, T.DecimalType) and one.scale and isinstance(other, T.IntegralType | T.DoubleType)
        return bool(is_scaled) or {type(one), type(other)} in ALIKE

    return _any_struct(was, now, lambda then, there: bool(untold(then, there)), differs)


def _any_struct(
    was: T.DataType,
    now: T.DataType,
    holds: Callable[[T.StructType, T.StructType], bool],
    otherwise: Callable[[T.DataType, T.DataType], bool] = lambda *_: False,
) -> bool:
    """Whether it holds for two types of structs, or for the structs in arrays and maps; otherwise: for other types."""
    match was, now:
        case T.StructType(), T.StructType():
            return holds(was, now)
        case T.ArrayType(), T.ArrayType():
            return _any_struct(was.elementType, now.elementType, holds, otherwise)
        case T.MapType(), T.MapType():
            each = ((was.keyType, now.keyType), (was.valueType, now.valueType))
            return any(_any_struct(*both, holds, otherwise) for both in each)
    return otherwise(was, now)


def comes_back(before: T.StructType, after: T.StructType) -> bool:
    """Whether there are columns, or parts of them, that were not there, or others of their names."""
    then, now = bare_columns(before), bare_columns(after)
    return later(then, now) != then or has_replaced(then, now)


def later(there: T.StructType, now: T.StructType) -> T.StructType:
    """The columns that rows of these have with those, and those parts of columns, that came later; no text has them.

    New parts lie where they are today, unless the others were reordered since, which tell the rows.
    """
    (had, found), names = by_file(there, now), {f.name.lower() for f in there.fields}
    fields = {name: f for name, f in found.items() if name in had or f.name.lower() not in names}
    stays = [name for name in fields if name in had] == list(had)
    grown = {name: _grown(f, fields.get(name, f)) for name, f in had.items()}
    wanted = fields | grown if stays else grown | {name: f for name, f in fields.items() if name not in had}
    return T.StructType(list(wanted.values()))


def _grown(field: T.StructField, now: T.StructField) -> T.StructField:
    kind = _grown_type(field.dataType, now.dataType)
    return field if kind == field.dataType else T.StructField(field.name, kind, field.nullable, field.metadata)


def _grown_type(was: T.DataType, now: T.DataType) -> T.DataType:
    match was, now:
        case T.StructType(), T.StructType():
            return later(was, now)
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(_grown_type(was.elementType, now.elementType), was.containsNull)
        case T.MapType(), T.MapType():
            return T.MapType(was.keyType, _grown_type(was.valueType, now.valueType), was.valueContainsNull)
    return was
