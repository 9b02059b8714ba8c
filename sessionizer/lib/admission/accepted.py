"""The accepted bag: source - rejected insertions + rejected deletions, by population (SEMANTICS §3)."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.validate import raw_us, validate
from sessionizer.lib.admission.verdicts import BESIDE, IN, OUT
from sessionizer.lib.bags import hashed, nth, own_columns
from sessionizer.lib.canonical import from_canonical_json
from sessionizer.lib.compute import Compute
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.spans import Spans, within
from sessionizer.lib.time.watermarks import WatermarkState

FOREVER = 2**61  # µs: a present time that nothing is ahead of


@dataclass(frozen=True)
class Past:
    """What has been consumed, as admission may look it up.

    events: makes the rows of the source in these spans of microseconds, both ends inclusive (None: all of them), as of
    the end of the increment; rows outside the spans may come along.
    rejected: makes the rows of `rejected_events` that earlier runs have written; None: there are none.
    """

    events: Callable[[Spans | None], DataFrame]
    rejected: Callable[[], DataFrame | None] = lambda: None


def accepted(
    source: DataFrame, rejects: DataFrame | None, rule: Rule, compute: Compute, spans: Spans | None = None
) -> DataFrame:
    """The accepted bag within these spans of time.

    In: rows of the source; `rejects`: what `as_rejects` returns.
    Out: what `validate` returns, of valid rows; with `__population`, where some may be apart.
    """
    valid = valid_rows(source, rule)
    if spans is not None:
        valid = valid.where(within(C.col(C.US), spans))
    if rejects is None:
        return valid
    near = rejects if spans is None else rejects.where(within(C.col(C.US), spans))
    near, seen = compute.observed(near, {kept: F.count_if(C.col(C.KEPT) == kept) for kept in (OUT, IN, BESIDE)})
    if seen[IN]:
        valid = valid.unionByName(kept_in(near.where(C.col(C.KEPT) == IN), source, rule))
    if not seen[OUT] and not seen[BESIDE]:
        return valid
    return _without(valid, near.where(C.col(C.KEPT) != IN), rule, apart=bool(seen[BESIDE]))


def as_rejects(rejected: DataFrame, rule: Rule) -> DataFrame:
    """Rows of rejected_events as `accepted` takes them: the key columns, `__us`, `__hash`, `__json`, kept, run_seq."""
    return rejected.select(
        *C.cols(rule.key),
        F.unix_micros(C.col(C.EVENT_TIME)).alias(C.US),
        C.col(C.EVENT_HASH).alias(C.HASH),
        C.col(C.EVENT).alias(C.JSON),
        C.col(C.KEPT),
        C.col(C.RUN_SEQ).cast("bigint").alias(C.RUN_SEQ),
    )


def placed(rows: DataFrame, rejects: DataFrame, number: Column | None = None) -> DataFrame:
    """Rows with `__taken` and `__population`: of equal ones as many as were rejected are taken, the next are apart.

    Those that came last are the first, as what is gone already, and stays, came before.

    In: rows with `__hash`; what `as_rejects` returns, without the rejected deletions. number: of a row among equal
    ones, from 1 on; null: it is none of them.
    """
    counted = rejects.groupBy(C.HASH).agg(
        F.count_if(C.col(C.KEPT) == OUT).alias("__out"),
        F.sort_array(F.collect_list(F.when(C.col(C.KEPT) == BESIDE, C.col(C.RUN_SEQ))), asc=False).alias("__apart"),
    )
    told = joined(rows.withColumn("__n", nth() if number is None else number), counted, (C.HASH,), "left")
    place = (F.col("__n") - F.col("__out") - 1).cast("int")
    is_taken = F.coalesce(place < 0, F.lit(False))
    population = F.when(place >= 0, F.get(F.col("__apart"), place)).cast("bigint")
    return told.withColumns({C.TAKEN: is_taken, C.POPULATION: population}).drop("__n", "__out", "__apart")


def _without(valid: DataFrame, rejects: DataFrame, rule: Rule, *, apart: bool) -> DataFrame:
    """The rows less the rejected ones; with their population, where some are apart. Few have to be hashed."""
    places = (*rule.key, C.RAW_US)
    timed = valid.withColumn(C.RAW_US, raw_us(valid))
    spots = rejects.select(*C.cols(rule.key), C.col(C.US).alias(C.RAW_US)).distinct()
    clean = joined(timed, spots, places, "left_anti").withColumn(C.POPULATION, F.lit(None).cast("bigint"))
    left = placed(hashed(joined(timed, spots, places, "left_semi")), rejects).where(~C.col(C.TAKEN))
    names = C.cols((*valid.columns, *((C.POPULATION,) if apart else ())))
    return clean.select(*names).unionByName(left.select(*names))


def kept_in(rejects: DataFrame, source: DataFrame, rule: Rule) -> DataFrame:
    """The rows that are gone from the source, and whose events stay, as `validate` returns them, valid ones.

    In: rejected deletions with `__json`, and `__freed` where that is to go with them. source: for its columns.
    """
    return valid_rows(read_back(rejects, source), rule, (C.FREED,) if C.FREED in rejects.columns else ())


def read_back(rejects: DataFrame, source: DataFrame) -> DataFrame:
    """The rows that these were, with the columns that the source has now."""
    own = T.StructType([source.schema[name] for name in own_columns(source.columns)])
    beside = (C.FREED,) if C.FREED in rejects.columns else ()
    rows = rejects.select(from_canonical_json(C.col(C.JSON), own).alias("row"), *C.cols(beside))
    feed = [F.lit(None).cast(source.schema[n].dataType).alias(n) for n in source.columns if n not in own.names]
    told = rows.select(*[F.col("row")[n].alias(n) for n in own.names], *feed, *C.cols(beside))
    return told.select(*C.cols((*source.columns, *beside)))


def valid_rows(rows: DataFrame, rule: Rule, in_flight: tuple[str, ...] = ()) -> DataFrame:
    """Those that can be part of a session. Which of them were of the future when they came, rejected_events knows."""
    return validate(rows, rule, WatermarkState(FOREVER), in_flight).where(C.col(C.VERDICT).isNull())
