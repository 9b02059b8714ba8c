"""The greedy walk that `max_duration` asks for: the one cut that depends on all cuts before it (SEMANTICS §2)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.rule import Rule
from sessionizer.lib.windows.sessions.intervals import apart
from sessionizer.lib.windows.sessions.islands import beyond


def walk(partials: DataFrame, rule: Rule, *by: str) -> DataFrame:
    """Partials of single times, numbered by the session they belong to.

    One walk per key, population and `by` in time order: a time starts a new session iff it lies beyond the reach of
    the current session's own events, or more than `max_duration` after its start. The walk folds an array of times
    inside the JVM; only its cuts come out, and are counted where they fall among the times. The partials are read
    twice: they should be held.

    In: partials of `fold(…, fine=True)`. Out: the same and `__island` BIGINT, 1, 2, … in time order.
    """
    within = C.cols((*apart(partials, rule), *by))
    times = F.sort_array(F.collect_list(F.struct(C.col(C.START), C.col(C.REACH))))
    walks = partials.groupBy(*within).agg(_cuts(times, rule).alias("__cuts"))
    cuts = walks.select(*within, F.explode("__cuts").alias(C.START)).withColumn("__cut", F.lit(1))
    both = partials.withColumn("__cut", F.lit(0)).unionByName(cuts, allowMissingColumns=True)
    in_order = Window.partitionBy(*within).orderBy(C.col(C.START), C.col("__cut").desc())
    number = F.sum("__cut").over(in_order.rowsBetween(Window.unboundedPreceding, 0))
    numbered = both.withColumn(C.ISLAND, number).where(C.col("__cut") == 0)
    return numbered.select(*C.cols((*partials.columns, C.ISLAND)))


def _cuts(times: Column, rule: Rule) -> Column:
    """The starts of sessions in a sorted array of (start, reach)."""
    assert rule.max_duration is not None
    longest = rule.max_duration
    nothing = F.lit(None).cast("bigint")
    begin = F.struct(nothing.alias("start"), nothing.alias("reach"), F.array().cast("array<bigint>").alias("cuts"))

    def step(current: Column, event: Column) -> Column:
        start, reach = event[C.START], event[C.REACH]
        cut = current["start"].isNull() | beyond(start, current["reach"], rule) | (start - current["start"] > longest)
        return F.when(
            cut,
            F.struct(
                start.alias("start"), reach.alias("reach"), F.concat(current["cuts"], F.array(start)).alias("cuts")
            ),
        ).otherwise(
            F.struct(
                current["start"].alias("start"),
                F.greatest(current["reach"], reach).alias("reach"),
                current["cuts"].alias("cuts"),
            )
        )

    return F.aggregate(times, begin, step, lambda last: last["cuts"])
