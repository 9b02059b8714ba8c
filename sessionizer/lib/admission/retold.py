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
from sessionizer.lib.schema.evolution import bare, by_file, later

OLD, TIME, PASSES = "__old", "__time", "__passes"


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
    was, of_today = by_file(before, after)
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
    was, now = by_file(before, after)
    others = [C.col(name) for name in rows.columns if name not in before.names and name not in after.names]
    return rows.select(*[_field(f, was.get(name), lambda old: C.col(old.name)) for name, f in now.items()], *others)


def with_later(rows: DataFrame, there: T.StructType, now: T.StructType) -> DataFrame:
    """Rows by the columns that `later` returns, and others that they have."""
    was, wanted = by_file(there, later(there, now))
    grown = {name: f for name, f in wanted.items() if f not in there.fields}
    told = {f.name: _field(f, was.get(name), lambda old: C.col(old.name)) for name, f in grown.items()}
    return rows.withColumns(told) if told else rows


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
            then, today = by_file(was, now)
            fields = [_field(f, then.get(name), lambda old: value[old.name]) for name, f in today.items()]
            return F.when(value.isNotNull(), F.struct(*fields))
        case T.ArrayType(), T.ArrayType():
            return F.transform(value, lambda one: _as_now(one, was.elementType, now.elementType))
        case T.MapType(), T.MapType():
            values = F.transform_values(value, lambda _, one: _as_now(one, was.valueType, now.valueType))
            return F.transform_keys(values, lambda key, _: _as_now(key, was.keyType, now.keyType))
    if bare(was) == bare(now):
        return value
    numbers = isinstance(was, T.NumericType) and isinstance(now, T.NumericType)
    if numbers or {type(was), type(now)} == {T.DateType, T.TimestampNTZType}:  # a RESTORE may have it back as it was
        return value.try_cast(now)
    return F.lit(None).cast(now)
