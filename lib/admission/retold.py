"""Rejected rows told anew: by the columns that the source has now, where some were renamed, dropped or retyped."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib import columns as C
from lib.admission.rejects import IDENTITY
from lib.admission.validate import event_time_us
from lib.bags import hashed
from lib.canonical import JSON_OPTIONS, from_canonical_json
from lib.joins import joined
from lib.rule import Rule

OLD = "__old"
SINGLE = (T.AtomicType, T.NullType)


def is_told_otherwise(before: T.StructType, after: T.StructType, names: Mapping[str, str]) -> bool:
    """Whether rows with the columns of before have another text now. names: what columns of today were called."""
    now = {names[f.name]: f for f in after.fields if f.name in names}
    return any(f.name not in now or _told(now[f.name]) != _told(f) for f in before.fields)


def retold(
    rejects: DataFrame, source: DataFrame, after: T.StructType, names: Mapping[str, str], rule: Rule | None
) -> DataFrame:
    """The rows of rejected_events with the event, its hash and its ordinal by the columns of today.

    A row that was kept whole tells itself; of the others the source as it was has the event.

    In: rejects; the source as it was, with the columns that they are told by; the columns of today, and what they were
    called then. rule: what the key and time of rejects are of; None: they are of another rule.
    """
    before = source.schema
    kept = rejects.where(C.col(C.EVENT).isNotNull()).dropDuplicates([C.EVENT_HASH])
    texts = kept.select(C.col(C.EVENT_HASH).alias(OLD), from_canonical_json(C.col(C.EVENT), before).alias("row"))
    near = source
    if rule is not None:
        places = rejects.select(*C.cols(rule.key), F.unix_micros(C.col(C.EVENT_TIME)).alias(C.US)).distinct()
        timed = source.withColumn(C.US, event_time_us(source, rule))
        near = joined(timed, places, (*rule.key, C.US), "left_semi").drop(C.US)
    found = hashed(near).select(C.col(C.HASH).alias(OLD), *C.cols(tuple(before.names)))
    rows = texts.select(OLD, "row.*").unionByName(found).dropDuplicates([OLD])
    types = {f.name: f.dataType for f in before.fields}
    now = [_as_now(names.get(f.name), types, f.dataType).alias(f.name) for f in after.fields]
    pairs = hashed(rows.select(OLD, *now)).select(C.col(OLD).alias(C.EVENT_HASH), C.HASH, C.JSON)
    met = joined(rejects, pairs, (C.EVENT_HASH,), "left")
    text = F.when(C.col(C.EVENT).isNotNull(), F.coalesce(C.col(C.JSON), C.col(C.EVENT)))
    hash_now = F.coalesce(C.col(C.HASH), C.col(C.EVENT_HASH))
    alike = Window.partitionBy(hash_now, C.col(C.RUN_SEQ)).orderBy(*C.cols(IDENTITY))
    told = {C.ORDINAL: F.row_number().over(alike), C.EVENT: text, C.EVENT_HASH: hash_now}
    return met.withColumns(told).select(*C.cols(tuple(rejects.columns)))


def _as_now(name: str | None, types: Mapping[str, T.DataType], now: T.DataType) -> Column:
    """The value of a column in today's type; of one that was not there, null."""
    if name is None or name not in types:
        return F.lit(None).cast(now)
    value, was = C.col(name), types[name]
    if was.simpleString() == now.simpleString():
        return value
    if isinstance(was, SINGLE) and isinstance(now, SINGLE):
        return value.cast(now)
    text = F.to_json(F.struct(value.alias("value")), JSON_OPTIONS)  # fields of structs find each other by name
    return from_canonical_json(text, T.StructType([T.StructField("value", now)]))["value"]


def _told(field: T.StructField) -> tuple[str, str]:
    return field.name, field.dataType.simpleString()
