"""What a run writes to the windows table: how its rows differ from those that are there."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.compare import same_row
from lib.time.watermarks import WatermarkState, with_clock
from lib.windows.sliding.rule import SlidingRule
from lib.windows.windows import DELETE, INSERT, UPDATE

WAS = "__was_"  # before the names of what the table holds


def window_changes(
    settled: DataFrame, known: DataFrame | None, felt: DataFrame | None, rule: SlidingRule, clock: WatermarkState
) -> DataFrame:
    """The rows that differ from what the table holds, each with what to do to it.

    settled: the windows that the run has computed: all that a changed time can concern.
    known: rows of the table, those that are not final and those that a changed time can concern; None: there are none.
    felt: points of changed times, if any of them may have taken a window away.
    Out: the columns of the table but run_id, `__was_final`, `__old_start` (BIGINT; both null for a new row) and
    `__change`: `insert`, `update` or `delete`.
    """
    if known is None:
        nothing = {C.WAS_FINAL: "boolean", C.OLD_START: "bigint"}
        news = [F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()]
        return settled.select("*", *news, F.lit(INSERT).alias(C.CHANGE))
    names = [n for n in known.columns if n != C.RUN_ID]
    types = {f.name: f.dataType for f in known.schema.fields if f.name in names}
    marked = _final_by_now(_felt(known, felt, rule), rule, clock)
    before = marked.select(
        *[C.col(n).alias(WAS + n) for n in names], F.col("__felt"), F.col("__final_now"), F.lit(True).alias("__there")
    )
    same_place = [C.col(name).eqNullSafe(C.col(WAS + name)) for name in (*rule.key, C.WINDOW_START)]
    met = settled.withColumn("__new", F.lit(True)).join(before, reduce(Column.__and__, same_place), "full_outer")
    same = same_row({n: C.col(n) for n in names}, {n: C.col(WAS + n) for n in names}, types)
    new, there = F.col("__new").isNotNull(), F.col("__there").isNotNull()
    change = (
        F.when(new & ~there, INSERT)
        .when(new & ~same, UPDATE)
        .when(~new & F.col("__felt"), DELETE)
        .when(~new & F.col("__final_now") & ~C.col(WAS + C.IS_FINAL), UPDATE)
    )
    kept = {C.IS_FINAL: F.col("__final_now"), C.STATE: F.lit(None)}
    rows = met.withColumn(C.CHANGE, change).where(C.col(C.CHANGE).isNotNull())
    return rows.select(
        *[F.when(new, C.col(n)).otherwise(kept.get(n, C.col(WAS + n))).alias(n) for n in names],
        C.col(WAS + C.IS_FINAL).alias(C.WAS_FINAL),
        F.unix_micros(C.col(WAS + C.WINDOW_START)).alias(C.OLD_START),
        C.col(C.CHANGE),
    )


def _felt(known: DataFrame, felt: DataFrame | None, rule: SlidingRule) -> DataFrame:
    """Rows with whether a changed time lies in `[start - u, end]`."""
    if felt is None:
        return known.withColumn("__felt", F.lit(False))
    marks = felt.select(*C.cols(rule.key), C.col(C.US), F.lit(True).alias("__mark"))
    placed = known.withColumn(C.US, F.unix_micros(C.col(C.WINDOW_START)))
    both = placed.unionByName(marks, allowMissingColumns=True)
    by_time = Window.partitionBy(*C.cols(rule.key)).orderBy(C.US).rangeBetween(-rule.unit, rule.difference)
    marked = both.withColumn("__felt", F.coalesce(F.max("__mark").over(by_time), F.lit(False)))
    return marked.where(F.col("__mark").isNull()).drop("__mark", C.US)


def _final_by_now(known: DataFrame, rule: SlidingRule, clock: WatermarkState) -> DataFrame:
    now = with_clock(known, rule.events, clock)
    final = F.coalesce(F.unix_micros(C.col(C.WINDOW_END)) < C.col(C.H), F.lit(False)) | C.col(C.IS_FINAL)
    return now.withColumn("__final_now", final).select(*C.cols(tuple(known.columns)), "__final_now")
