"""Fold: events of a key in the same gap-wide bucket become one partial session, before any sort."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lib import columns as C
from lib.aggregates import Aggregate
from lib.rule import Rule
from lib.times import floor_div


def fold(judged: DataFrame, rule: Rule, aggregates: tuple[Aggregate, ...]) -> DataFrame:
    """Partial sessions of judged events.

    Two events of a key in one bucket `[n·gap, (n+1)·gap)` are less than a gap apart, so they share a session
    under either boundary. Rejected events are folded beside, by verdict, so that one pass counts everything.

    In: what `events.judge` returns.
    Out: `__verdict`, the key columns, `__start`, `__end`, `__count` (BIGINT), the parts of the aggregates.
    """
    bucketed = judged.withColumn(C.BUCKET, floor_div(C.col(C.US), rule.gap))
    grouped = bucketed.groupBy(C.col(C.VERDICT), *C.cols(rule.key), C.col(C.BUCKET))
    folded = grouped.agg(
        F.min(C.col(C.US)).alias(C.START),
        F.max(C.col(C.US)).alias(C.END),
        F.count(F.lit(1)).alias(C.COUNT),
        *[part for a in aggregates for part in a.partial()],
    )
    return folded.drop(C.BUCKET)
