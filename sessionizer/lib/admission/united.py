"""United: rows of several sources as those of one table, by the columns of all and `source`."""

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.config import EventSource
from sessionizer.lib.errors import SourceMismatch
from sessionizer.lib.expressions import key_field, made_problems, of_event

WHOLE = [T.ByteType, T.ShortType, T.IntegerType, T.LongType]


def of_one(rows: DataFrame, source: EventSource) -> DataFrame:
    """Rows of one of several sources with its name in `source`, and the key columns that it has not itself.

    Those of the only source stay as they are. A key is null where its SQL has no value.
    Errors: SourceMismatch, ConfigError for what does not fit the source.
    """
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

    widest: of types one of which is the other widened, the wider one serves.
    """
    if len(schemas) == 1:
        return schemas[0]
    found: dict[str, T.StructField] = {}
    for field in (field for schema in schemas for field in schema.fields):
        known = found.setdefault(field.name.lower(), T.StructField(field.name, field.dataType))
        if widest and known.name == field.name:
            if is_widened(known.dataType, field.dataType):
                known.dataType = field.dataType
            elif is_widened(field.dataType, known.dataType):
                continue
        if known.dataType.simpleString() != field.dataType.simpleString() or known.name != field.name:
            has = [f"{f.name} {f.dataType.simpleString().upper()}" for f in (known, field)]
            raise SourceMismatch(
                "a column that several sources have must have one type in all, and one spelling",
                value=f"{has[0]}, {has[1]}",
                remedy="retype or rename it in one of the tables (ALTER TABLE …); a key column may be told by "
                "{name, expr} in one source",
            )
    return T.StructType(list(found.values()))


def as_united(columns: Mapping[str, T.StructType]) -> dict[str, T.StructType]:
    """The columns of each source, with the types that its rows have in the union of all."""
    kinds = {f.name: f.dataType for f in together([*columns.values()], widest=True).fields}

    def told(field: T.StructField) -> T.StructField:
        is_wider = is_widened(field.dataType, kinds[field.name])
        return T.StructField(field.name, kinds[field.name], field.nullable, field.metadata) if is_wider else field

    return {name: T.StructType([told(field) for field in of.fields]) for name, of in columns.items()}


def name_problems(columns: T.StructType) -> Iterator[SourceMismatch]:
    """A column of a source that is called as the one which says of which source a row is."""
    if (taken := next((name for name in columns.names if name.lower() == C.SOURCE), None)) is not None:
        yield SourceMismatch(
            f"of several sources none must have a column {C.SOURCE}: it says which of them an event is of",
            value=taken,
            remedy="rename it in the source (ALTER TABLE … RENAME COLUMN, or ingest --rename)",
        )


def _as(frame: DataFrame, field: T.StructField) -> Column:
    is_wider = is_widened(frame.schema[field.name].dataType, field.dataType)
    return C.col(field.name).cast(field.dataType).alias(field.name) if is_wider else C.col(field.name)


def _with_all(frame: DataFrame, fields: Sequence[T.StructField]) -> DataFrame:
    there = {name.lower() for name in frame.columns}

    def lacking(field: T.StructField) -> str | None:
        return "insert" if field.name == C.CHANGE_TYPE else None

    return frame.select(
        *[
            _as(frame, f) if f.name.lower() in there else F.lit(lacking(f)).cast(f.dataType).alias(f.name)
            for f in fields
        ]
    )


def is_widened(then: T.DataType, now: T.DataType) -> bool:
    """Whether Delta lets the one grow to the other, itself or in its parts."""
    match then, now:
        case T.StructType(), T.StructType():
            return then.names == now.names and _parts_are_widened(
                [(one.dataType, other.dataType) for one, other in zip(then.fields, now.fields, strict=True)]
            )
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


def _parts_are_widened(parts: Sequence[tuple[T.DataType, T.DataType]]) -> bool:
    """Whether some are, and the others are what they were."""
    grown = [pair for pair in parts if pair[0].simpleString() != pair[1].simpleString()]
    return bool(grown) and all(is_widened(*pair) for pair in grown)
