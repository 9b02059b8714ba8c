"""Rejected rows told anew: by the columns that the source has now, where some were renamed, dropped or retyped."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.rejects import IDENTITY
from sessionizer.lib.admission.validate import event_time_us, passing
from sessionizer.lib.admission.verdicts import CORRECTION, IN
from sessionizer.lib.bags import hashed
from sessionizer.lib.canonical import from_canonical_json
from sessionizer.lib.expressions import with_keys
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule

OLD, TIME, PASSES = "__old", "__time", "__passes"
# By the type of the other files have values; `overwriteSchema` leaves them as they are.
ALIKE = (
    *({of, T.BinaryType} for of in (T.StringType, T.DecimalType)),
    {T.TimestampNTZType, T.TimestampType},
    *({of, T.LongType} for of in (T.TimestampType, T.TimestampNTZType)),
    *({T.DateType, of} for of in (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DoubleType)),
)
PHYSICAL = "delta.columnMapping.physicalName"  # what a column is called in the files, whatever it is renamed to


def bare(data_type: T.DataType) -> T.DataType:
    """A type as it is compared here: names, types, and names in the files."""
    match data_type:
        case T.StructType():
            fields = [T.StructField(f.name, bare(f.dataType), True, _named(f)) for f in data_type.fields]
            return T.StructType(fields)
        case T.ArrayType():
            return T.ArrayType(bare(data_type.elementType))
        case T.MapType():
            return T.MapType(bare(data_type.keyType), bare(data_type.valueType))
    return data_type


def is_told_otherwise(before: T.StructType, after: T.StructType) -> bool:
    """Whether rows of these columns have another text now; of a column that is new they have none. In: bare types.

    Columns are told by name, the parts of one in their order.
    """
    then, now = _by_file(before, after)
    met = [(f, now.get(name)) for name, f in then.items()]
    return any(n is None or n.name != f.name or _is_other(f.dataType, n.dataType) for f, n in met)


def _is_other(before: T.DataType, after: T.DataType) -> bool:
    match before, after:
        case T.NullType(), _:  # nothing of it was ever told
            return False
        case T.StructType(), T.StructType():
            then, now = _by_file(before, after)
            return [name for name in now if name in then] != list(then) or is_told_otherwise(before, after)
        case T.ArrayType(), T.ArrayType():
            return _is_other(before.elementType, after.elementType)
        case T.MapType(), T.MapType():
            return _is_other(before.keyType, after.keyType) or _is_other(before.valueType, after.valueType)
    return before != after


def replaced(before: T.StructType, after: T.StructType) -> list[str]:
    """The columns of after that are others than those of the same names before, or have such parts. In: bare types."""
    was = {field.name.lower(): field for field in before.fields}
    return [f.name for f in after.fields if f.name.lower() in was and _is_replaced(was[f.name.lower()], f)]


def gone(before: T.StructType, after: T.StructType, path: str = "") -> list[str]:
    """The columns of before, and parts of them by path, that are there no longer, or by another name. As `reshaped`."""
    then, now = _by_file(before, after)
    found = list[str]()
    for name, field in then.items():
        if name not in now or now[name].name != field.name:
            found.append(f"{path}{field.name}")
        elif isinstance(was := field.dataType, T.StructType) and isinstance(has := now[name].dataType, T.StructType):
            found += gone(was, has, f"{path}{field.name}.")
    return found


def _is_replaced(was: T.StructField, now: T.StructField) -> bool:
    is_other = PHYSICAL in now.metadata and _physical(was) != _physical(now)  # else the files were written anew
    return is_other or _has_replaced(was.dataType, now.dataType)


def _has_replaced(was: T.DataType, now: T.DataType) -> bool:
    return _any_struct(was, now, lambda then, there: bool(replaced(then, there)))


def reshaped(before: T.StructType, after: T.StructType, path: str = "") -> list[str]:
    """The columns of after, and parts of them by path, that have lost parts, or have them otherwise named or ordered.

    In: bare types. path: of what these are parts of, with a dot.
    """
    then, now = _by_file(before, after)
    found = list[str]()
    for name, field in then.items():
        if name in now and _has_lost(was := field.dataType, has := now[name].dataType):
            found.append(f"{path}{now[name].name}")
            if isinstance(was, T.StructType) and isinstance(has, T.StructType):
                found += reshaped(was, has, f"{found[-1]}.")
    return found


def _has_lost(was: T.DataType, now: T.DataType) -> bool:
    def has(before: T.StructType, after: T.StructType) -> bool:
        then, there = _by_file(before, after)
        names = [(name, f.name) for name, f in there.items() if name in then]
        return names != [(name, f.name) for name, f in then.items()] or bool(reshaped(before, after))

    return _any_struct(was, now, has)


def untold(before: T.StructType, after: T.StructType) -> list[str]:
    """The columns of after by whose type files tell other values than texts by that of before. In: bare types."""
    then, now = _by_file(before, after)
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
    then, now = (T.StructType([T.StructField("row", bare(of))]) for of in (before, after))
    return later(then, now) != then or bool(replaced(then, now))


def retold(
    rejects: DataFrame, source: DataFrame | None, before: T.StructType, after: T.StructType, rule: Rule | None
) -> DataFrame:
    """The rows of rejected_events with the event, its hash and its ordinal by the columns of today.

    A row that was kept whole tells itself; of the others the source as it was has the event. One whose time had failed
    gets the time that it has now, and is a correction where the rest of its update waits; one that `where` leaves out
    now, which had failed for it, is a row no longer.

    In: rejects; the source as it was, None: all rows were kept whole; its columns then and now, bare. rule: what the
    key and time of rejects are of; None: they are of another one.
    """
    kept = rejects.where(C.col(C.EVENT).isNotNull()).dropDuplicates([C.EVENT_HASH])
    texts = kept.select(C.col(C.EVENT_HASH).alias(OLD), from_canonical_json(C.col(C.EVENT), before).alias("row"))
    rows = texts.select(OLD, "row.*")
    if source is not None:
        near = source if rule is None else _at_places_of(rejects, source, rule)
        rows = rows.unionByName(hashed(near).select(C.col(C.HASH).alias(OLD), *C.cols(tuple(before.names))))
    was, of_today = _by_file(before, after)
    now = [_field(f, was.get(name), lambda old: C.col(old.name)) for name, f in of_today.items()]
    told = hashed(rows.dropDuplicates([OLD]).select(OLD, *now))
    now_told = told.select(C.col(OLD).alias(C.EVENT_HASH), C.HASH, C.JSON, *_by_rule(told, rule))
    met = joined(rejects, now_told, (C.EVENT_HASH,), "left")
    met = met.where((C.col(C.KEPT) == IN) | F.coalesce(F.col(PASSES), F.lit(True)))
    text = F.when(C.col(C.EVENT).isNotNull(), F.coalesce(C.col(C.JSON), C.col(C.EVENT)))
    hash_now = F.coalesce(C.col(C.HASH), C.col(C.EVENT_HASH))
    alike = Window.partitionBy(hash_now, C.col(C.RUN_SEQ)).orderBy(*C.cols(IDENTITY))
    time = F.coalesce(C.col(C.EVENT_TIME), F.col(TIME))
    of_commit = F.bool_or((C.col(C.KEPT) == IN) & (C.col(C.REASON) == CORRECTION)).over(
        Window.partitionBy(C.SOURCE_VERSION)
    )
    waits = C.col(C.EVENT_TIME).isNull() & time.isNotNull() & C.col(C.SOURCE_VERSION).isNotNull() & of_commit
    anew = {
        C.REASON: F.when(waits, CORRECTION).otherwise(C.col(C.REASON)),
        C.ORDINAL: F.row_number().over(alike),
        C.EVENT: text,
        C.EVENT_HASH: hash_now,
        C.EVENT_TIME: time,
    }
    return met.withColumns(anew).select(*C.cols(tuple(rejects.columns)))


def as_told(rows: DataFrame, before: T.StructType, after: T.StructType) -> DataFrame:
    """Rows of these columns before by those of after: renamed, and null where nobody knows the value. Others stay."""
    if bare(before) == bare(after):
        return rows
    was, now = _by_file(before, after)
    others = [C.col(name) for name in rows.columns if name not in before.names and name not in after.names]
    return rows.select(*[_field(f, was.get(name), lambda old: C.col(old.name)) for name, f in now.items()], *others)


def with_later(rows: DataFrame, there: T.StructType, now: T.StructType) -> DataFrame:
    """Rows by the columns that `later` returns, and others that they have."""
    was, wanted = _by_file(there, later(there, now))
    grown = {name: f for name, f in wanted.items() if f not in there.fields}
    told = {f.name: _field(f, was.get(name), lambda old: C.col(old.name)) for name, f in grown.items()}
    return rows.withColumns(told) if told else rows


def later(there: T.StructType, now: T.StructType) -> T.StructType:
    """The columns that rows of these have with those, and those parts of columns, that came later; no text has them.

    New parts lie where they are today, unless the others were reordered since, which tell the rows.
    """
    (had, found), names = _by_file(there, now), {f.name.lower() for f in there.fields}
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


def _by_rule(told: DataFrame, rule: Rule | None) -> list[Column]:
    """The time of an event, and whether `where` lets it through; null and true where the rule is another one."""
    passes = None if rule is None else passing(told, rule)
    time = F.lit(None) if rule is None else event_time_us(told, rule)
    let_through = F.lit(True) if passes is None else F.coalesce(passes, F.lit(False))
    return [F.timestamp_micros(time.cast("bigint")).alias(TIME), let_through.alias(PASSES)]


def _at_places_of(rejects: DataFrame, source: DataFrame, rule: Rule) -> DataFrame:
    """The rows of the source that have key and time of one that is rejected."""
    places = rejects.select(*C.cols(rule.key), F.unix_micros(C.col(C.EVENT_TIME)).alias(C.US)).distinct()
    timed = with_keys(source, rule.made).withColumn(C.US, event_time_us(source, rule))
    return joined(timed, places, (*rule.key, C.US), "left_semi").drop(C.US)


def _field(now: T.StructField, was: T.StructField | None, value: Callable[[T.StructField], Column]) -> Column:
    """The value of a field in today's type and by today's name; of one that was not there, null."""
    told = F.lit(None).cast(now.dataType) if was is None else _as_now(value(was), was.dataType, now.dataType)
    return told.alias(now.name)


def _as_now(value: Column, was: T.DataType, now: T.DataType) -> Column:
    """The value as the source has it now: widened where Delta can do so; else nobody knows, and it is null."""
    match was, now:
        case T.StructType(), T.StructType():
            then, today = _by_file(was, now)
            fields = [_field(f, then.get(name), lambda old: value[old.name]) for name, f in today.items()]
            return F.when(value.isNotNull(), F.struct(*fields))
        case T.ArrayType(), T.ArrayType():
            return F.transform(value, lambda one: _as_now(one, was.elementType, now.elementType))
        case T.MapType(), T.MapType():
            values = F.transform_values(value, lambda _, one: _as_now(one, was.valueType, now.valueType))
            return F.transform_keys(values, lambda key, _: _as_now(key, was.keyType, now.keyType))
    if was == now:
        return value
    numbers = isinstance(was, T.NumericType) and isinstance(now, T.NumericType)
    if numbers or {type(was), type(now)} == {T.DateType, T.TimestampNTZType}:  # a RESTORE may have it back as it was
        return value.try_cast(now)
    return F.lit(None).cast(now)


def _by_file(before: T.StructType, after: T.StructType) -> tuple[dict[str, T.StructField], dict[str, T.StructField]]:
    """The columns of both by what they are called in the files; one that has no other name there any more, as today.

    Its files were written anew then.
    """
    bare_now = {field.name for field in after.fields if PHYSICAL not in field.metadata}
    then = {field.name if field.name in bare_now else _physical(field): field for field in before.fields}
    return then, {_physical(field): field for field in after.fields}


def _physical(field: T.StructField) -> str:
    return str(field.metadata.get(PHYSICAL, field.name))


def _named(field: T.StructField) -> dict[str, str]:
    return {PHYSICAL: field.metadata[PHYSICAL]} if PHYSICAL in field.metadata else {}
