"""United: rows of several sources as those of one table, by the columns of all and `source`."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.canonical import holds_map, sorted_maps
from sessionizer.lib.config import EventSource
from sessionizer.lib.errors import SourceMismatch
from sessionizer.lib.expressions import key_field, made_problems, of_event

OLDER_ROWS = "if a run still meets rows from before that, `sessionizer rebuild` takes the source as it stands"
RENAME_IT = f"rename it in the source (ALTER TABLE … RENAME COLUMN, or ingest --rename); {OLDER_ROWS}"
WHOLE = [T.ByteType, T.ShortType, T.IntegerType, T.LongType]


def of_one(rows: DataFrame, source: EventSource) -> DataFrame:
    """Rows of one of several sources with its name in `source`, and the key columns that it has not itself.

    Those of the only source stay as they are, but for the entries of maps: a change feed has them in another order than
    the table, and expressions may tell it. A key is null where its SQL has no value.
    Errors: SourceMismatch, ConfigError for what does not fit the source.
    """
    maps = {f.name: sorted_maps(C.col(f.name), f.dataType) for f in rows.schema.fields if holds_map(f.dataType)}
    rows = rows.withColumns(maps) if maps else rows
    if not source.label:
        return rows
    for problem in (*name_problems(rows.schema), *made_problems(source.made, rows.schema)):
        raise problem
    keys = {key.name: of_event(key.expr, rows, key_field(key))[0] for key in source.made}
    return rows.withColumns({C.SOURCE: F.lit(source.label), **keys})


def united(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """The frames with the columns of all, in the same order; what one has not, is null.

    A column that was widened in all sources has the wider type, where one is read as it was before.
    Where some are of a change feed, the rows of the others are insertions.
    Errors: SourceMismatch, as of `together`.
    """
    fields = together([frame.schema for frame in frames], widest=True).fields
    return [frame if len(frames) == 1 else _with_all(frame, fields) for frame in frames]


def together(schemas: Sequence[T.StructType], *, widest: bool = False) -> T.StructType:
    """The columns of all. Errors: SourceMismatch where one is of several types, or is spelled in several ways.

    widest: of types one of which is the other widened the wider one serves; of structs each part.
    """
    if len(schemas) == 1:
        return schemas[0]
    found: dict[str, T.StructField] = {}
    for field in (field for schema in schemas for field in schema.fields):
        known = found.setdefault(field.name.lower(), T.StructField(field.name, field.dataType))
        if C.LENGTH in field.metadata and not str(known.metadata.get(C.LENGTH)).startswith("char("):
            known.metadata = {C.LENGTH: field.metadata[C.LENGTH]}
        wider = _of_both(known.dataType, field.dataType) if widest and known.name == field.name else None
        if wider is not None:
            known.dataType = wider
            continue
        if known.dataType.simpleString() != field.dataType.simpleString() or known.name != field.name:
            has = [f"{f.name} {f.dataType.simpleString().upper()}" for f in (known, field)]
            raise SourceMismatch(
                "a column that several sources have must have one type in all, and one spelling",
                value=f"{has[0]}, {has[1]}",
                remedy="retype or rename it in one of the tables (ALTER TABLE …); a key column may be told by "
                f"{{name, expr}} in one source; {OLDER_ROWS}",
            )
    return T.StructType(list(found.values()))


def as_united(columns: Mapping[str, T.StructType]) -> dict[str, T.StructType]:
    """The columns of each source, with the types that its rows have in the union of all, and parts of its own."""
    all_of_them = together([*columns.values()], widest=True)
    return {name: _widest(of, all_of_them) for name, of in columns.items()}


def as_begun(columns: Mapping[str, T.StructType], begun: Collection[str]) -> dict[str, T.StructType]:
    """The columns of each source; those that have not begun have no rows yet, and the types of the others."""
    if not begun or len(begun) == len(columns):
        return dict(columns)
    known = {field.name: field.dataType for field in together([columns[name] for name in begun], widest=True).fields}

    def typed(of: T.StructType) -> T.StructType:
        return T.StructType([T.StructField(f.name, known.get(f.name, f.dataType), f.nullable, f.metadata) for f in of])

    return {name: of if name in begun else typed(of) for name, of in columns.items()}


def with_types(rows: DataFrame, columns: T.StructType) -> DataFrame:
    """The rows with these types of their columns."""
    return rows if columns == rows.schema else rows.select(*[_as(rows, field) for field in columns])


def _of_both(one: T.DataType, other: T.DataType) -> T.DataType | None:
    """The type to which both may grow; None: there is none."""
    match one, other:
        case T.StructType(), T.StructType():
            parts = {field.name: field.dataType for field in one.fields}
            for field in other.fields:
                kind = _of_both(parts.get(field.name, field.dataType), field.dataType)
                if kind is None:
                    return None
                parts[field.name] = kind
            return T.StructType([T.StructField(name, kind) for name, kind in parts.items()])
        case T.ArrayType(), T.ArrayType():
            kind = _of_both(one.elementType, other.elementType)
            return None if kind is None else T.ArrayType(kind)
        case T.MapType(), T.MapType():
            kinds = _of_both(one.keyType, other.keyType), _of_both(one.valueType, other.valueType)
            return None if kinds[0] is None or kinds[1] is None else T.MapType(kinds[0], kinds[1])
    if one.simpleString() == other.simpleString():
        return one
    return other if is_widened(one, other) else one if is_widened(other, one) else None


def _widest(own: T.DataType, wide: T.DataType) -> Any:
    match own, wide:
        case T.StructType(), T.StructType():
            kinds = {field.name: field.dataType for field in wide.fields}
            told = [(f, _widest(f.dataType, kinds[f.name]) if f.name in kinds else f.dataType) for f in own.fields]
            return T.StructType([T.StructField(f.name, kind, f.nullable, f.metadata) for f, kind in told])
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(_widest(own.elementType, wide.elementType))
        case T.MapType(), T.MapType():
            return T.MapType(_widest(own.keyType, wide.keyType), _widest(own.valueType, wide.valueType))
    return wide if is_widened(own, wide) else own


def name_problems(columns: T.StructType) -> Iterator[SourceMismatch]:
    """A column of a source that is called as the one which says of which source a row is."""
    if (taken := next((name for name in columns.names if name.lower() == C.SOURCE), None)) is not None:
        yield SourceMismatch(
            f"of several sources none must have a column {C.SOURCE}: it says which of them an event is of",
            value=taken,
            remedy=RENAME_IT,
        )


def _as(frame: DataFrame, field: T.StructField) -> Column:
    then = frame.schema[field.name].dataType
    return _named(as_type(C.col(field.name), then, field.dataType), field)


def _named(value: Column, field: T.StructField) -> Column:
    """By the name of a column, and with the length that it has in some source: what compares it is refused in all."""
    return value.alias(field.name, metadata=field.metadata) if field.metadata else value.alias(field.name)


def _with_all(frame: DataFrame, fields: Sequence[T.StructField]) -> DataFrame:
    there = {name.lower() for name in frame.columns}

    def lacking(field: T.StructField) -> str | None:
        return "insert" if field.name == C.CHANGE_TYPE else None

    return frame.select(
        *[_as(frame, f) if f.name.lower() in there else _named(F.lit(lacking(f)).cast(f.dataType), f) for f in fields]
    )


def is_widened(then: T.DataType, now: T.DataType) -> bool:
    """Whether Delta lets the one grow to the other, itself or in its parts, of which more may come."""
    match then, now:
        case T.StructType(), T.StructType():
            there = {field.name: field.dataType for field in now.fields}
            parts = [(field.dataType, there[field.name]) for field in then.fields if field.name in there]
            if len(parts) < len(then.fields):
                return False
            return _parts_are_widened(parts) or (len(parts) < len(there) and _are_alike(parts))
        case T.ArrayType(), T.ArrayType():
            return is_widened(then.elementType, now.elementType)
        case T.MapType(), T.MapType():
            return _parts_are_widened([(then.keyType, now.keyType), (then.valueType, now.valueType)])
        case T.IntegralType(), T.IntegralType():
            return WHOLE.index(type(then)) < WHOLE.index(type(now))
        case T.DecimalType(), T.DecimalType():
            whole, wider = (of.precision - of.scale for of in (then, now))
            return then != now and whole <= wider and then.scale <= now.scale
        case T.IntegralType(), T.DecimalType():
            return now.precision - now.scale >= (20 if isinstance(then, T.LongType) else 10)
        case ((T.FloatType() | T.ByteType() | T.ShortType() | T.IntegerType()), T.DoubleType()):
            return True
    return isinstance(then, T.DateType) and isinstance(now, T.TimestampNTZType)


def as_type(value: Column, then: T.DataType, now: T.DataType) -> Column:
    """A value of the one type as one of the other, which is wider or narrower; parts that it does not have are null."""
    if then.simpleString() == now.simpleString():
        return value
    if isinstance(now, T.NullType):  # nothing can be cast to it
        return F.lit(None)
    match then, now:
        case T.StructType(), T.StructType():
            there = {field.name: field.dataType for field in then.fields}
            parts = [
                as_type(value[f.name], there[f.name], f.dataType) if f.name in there else F.lit(None).cast(f.dataType)
                for f in now.fields
            ]
            named = [part.alias(field.name) for part, field in zip(parts, now.fields, strict=True)]
            return F.when(value.isNotNull(), F.struct(*named))
        case T.ArrayType(), T.ArrayType():
            return F.transform(value, lambda one: as_type(one, then.elementType, now.elementType))
        case T.MapType(), T.MapType():
            keyed = F.transform_keys(value, lambda key, _: as_type(key, then.keyType, now.keyType))
            return F.transform_values(keyed, lambda _, one: as_type(one, then.valueType, now.valueType))
    return value.cast(now)


def _parts_are_widened(parts: Sequence[tuple[T.DataType, T.DataType]]) -> bool:
    """Whether some are, and the others are what they were."""
    grown = [pair for pair in parts if not _are_alike([pair])]
    return bool(grown) and all(is_widened(*pair) for pair in grown)


def _are_alike(parts: Sequence[tuple[T.DataType, T.DataType]]) -> bool:
    return all(then.simpleString() == now.simpleString() for then, now in parts)
