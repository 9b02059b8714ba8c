"""The accepted bag, counted: source - rejected insertions + rejected deletions, by the hash of whole rows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.validate import raw_us, validate
from sessionizer.lib.admission.verdicts import BESIDE, IN, OUT
from sessionizer.lib.bags import hashed, own_columns
from sessionizer.lib.canonical import from_canonical_json
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState

FOREVER = 2**61  # µs: a present that nothing is ahead of; what was of the future when it came, rejected_events knows
PLACE, REJECTED, APART, THERE, ROW = "__place", "__rejected", "__apart", "__there", "__row"


def judged(source: DataFrame, rule: Rule) -> DataFrame:
    """Rows of the source as `validate` returns them: valid ones have no `__verdict`."""
    return validate(source, rule, WatermarkState(FOREVER))


def asked_about(rejects: DataFrame) -> DataFrame:
    """Rows of rejected_events to be held: of what is in the source, the time and the hash tell enough."""
    return rejects.withColumn(C.EVENT, F.when(C.col(C.KEPT) == IN, C.col(C.EVENT)))


def alike(rows: DataFrame, rejects: DataFrame | None, rule: Rule) -> DataFrame:
    """The rows of the source, and those that are gone from it and stay, where any are rejected; one for each hash.

    And all of the source that are not valid. To be held: all that asks about rejected rows reads it.
    In: what `judged` returns; rows of rejected_events, None: there are none. Out: `__hash`, `__there` BIGINT (copies),
    `__row` (one of these).
    """
    is_invalid = C.col(C.VERDICT).isNotNull()
    if rejects is None:
        near = rows.where(is_invalid)
    else:
        asked, places = _with_gone(rows, rejects, rule), _places(rejects, rule).withColumn("__met", F.lit(True))
        met = joined(asked.withColumn(PLACE, raw_us(asked)), places, (*rule.key, PLACE), "left")
        near = met.where(F.col("__met") | is_invalid).drop(PLACE, "__met")
    near = hashed(near)
    row: Column = F.struct(*C.cols(tuple(rows.columns)))
    return near.groupBy(C.col(C.HASH)).agg(F.count(F.lit(1)).alias(THERE), F.first(row).alias(ROW))


def accepted(rows: DataFrame, rejects: DataFrame | None, near: DataFrame, rule: Rule) -> DataFrame:
    """The valid rows that count, with `__population` BIGINT: the run that they are late events apart of, or null.

    In: what `judged` returns; rows of rejected_events, None: there are none; what `alike` returns of both.
    """
    none = F.lit(None).cast("bigint")
    rows = _with_gone(rows, rejects, rule)
    valid = rows.where(C.col(C.VERDICT).isNull())
    if rejects is None:
        return valid.withColumn(C.POPULATION, none)
    there = valid.withColumn(PLACE, raw_us(valid))
    untouched = joined(there, _places(rejects, rule), (*rule.key, PLACE), "left_anti").drop(PLACE)
    counted = joined(near, _counted(rejects), (C.HASH,), "left")
    apart = F.coalesce(F.col(APART), F.array().cast("array<bigint>"))
    copies = F.concat(apart, F.array_repeat(none, F.col(THERE).cast("int")))
    number = F.greatest(F.col(THERE) - F.coalesce(F.col(REJECTED), F.lit(0)), F.lit(0))
    left = F.explode(F.slice(copies, F.lit(1), number.cast("int"))).alias(C.POPULATION)
    beside = counted.where(F.col(ROW)[C.VERDICT].isNull()).select(f"{ROW}.*", left)
    return untouched.withColumn(C.POPULATION, none).unionByName(beside)


def of_rejects(near: DataFrame, rejects: DataFrame) -> DataFrame:
    """What is rejected, deletions left out, beside the equal rows of the source: one row for each hash.

    In: what `alike` returns; rows of rejected_events, all or some.
    Out: `__hash`, `__rejected` BIGINT (copies out of any session), `__apart` ARRAY<BIGINT> (runs that have one apart),
    `__there` BIGINT (copies in the source), `__row` (one of these, as `judged` returns it; null: there is none).
    """
    met = joined(_counted(rejects), near, (C.HASH,), "left")
    return met.withColumn(THERE, F.coalesce(F.col(THERE), F.lit(0)))


def _with_gone(rows: DataFrame, rejects: DataFrame | None, rule: Rule) -> DataFrame:
    """The rows of the source, and those that are gone from it and stay where they were."""
    if rejects is None:
        return rows
    own = T.StructType([rows.schema[name] for name in own_columns(rows.columns)])
    gone = rejects.where(C.col(C.KEPT) == IN).select(from_canonical_json(C.col(C.EVENT), own).alias(ROW))
    return rows.unionByName(judged(gone.select(f"{ROW}.*"), rule))


def _counted(rejects: DataFrame) -> DataFrame:
    apart = F.when(C.col(C.KEPT) == BESIDE, C.col(C.RUN_SEQ).cast("bigint"))
    return (
        _kept_out(rejects)
        .groupBy(C.col(C.EVENT_HASH).alias(C.HASH))
        .agg(F.count_if(C.col(C.KEPT) == OUT).alias(REJECTED), F.sort_array(F.collect_list(apart)).alias(APART))
    )


def _places(rejects: DataFrame, rule: Rule) -> DataFrame:
    """Keys and times where something is rejected: few rows have to be hashed."""
    return _kept_out(rejects).select(*C.cols(rule.key), F.unix_micros(C.col(C.EVENT_TIME)).alias(PLACE)).distinct()


def _kept_out(rejects: DataFrame) -> DataFrame:
    return rejects.where(C.col(C.KEPT) != IN)
