"""Places: which rows of the table what comes and goes may touch, and where they lie."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import ADDS, LEAVES, AcceptedChanges
from sessionizer.lib.canonical import session_id
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.durations import EVER
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import timestamp
from sessionizer.lib.windows.sessions.boundaries import salt_of
from sessionizer.lib.windows.sessions.intervals import apart, bare_intervals
from sessionizer.lib.windows.sessions.islands import mark_islands


def may_touch(table: DataFrame, rule: Rule, low: int, high: int | None) -> DataFrame:
    """Rows that intervals within these times may touch; where there are cuts all that follow, too."""
    near = C.col(C.EXPIRES_AT) >= timestamp(low)
    if not rule.cuts and high is not None:
        near = near & (C.col(C.SESSION_START) <= timestamp(high))
    return table.where(near)


def unforgotten(intervals: DataFrame, forgotten: int, rule: Rule, *, is_again: bool) -> DataFrame:
    """Those of the table, and of the new ones what may concern them, or what is to come: not what lies before.

    Where cuts depend on all before them, what leaves before the mark makes the first session that is left anew,
    from its key's first event on: nobody knows any more where the chain began. So does an event from before the mark
    whose gap is its own, and reaches beyond it now. What is made again lies behind it, or, where nothing cuts, reaches
    it: all that one of these sessions has had is left.
    """
    if is_again and not (rule.cuts or rule.freezes):
        island = Window.partitionBy(*C.cols((*apart(intervals, rule), C.ISLAND)))
        reaches = C.col(C.LIVE).isNotNull() | (F.max(C.col(C.REACH)).over(island) >= forgotten)
        return mark_islands(intervals, rule).withColumn("__left", reaches).where("__left").drop(C.ISLAND, "__left")
    existing, start = C.col(C.LIVE).isNotNull(), C.col(C.START)
    first = F.min(F.when(existing, start)).over(Window.partitionBy(*C.cols(apart(intervals, rule))))
    told = intervals.withColumn("__first", F.least(first, F.lit(forgotten)))
    if not is_again:
        is_before = start <= first if rule.by_content else start < first  # what begins it may begin nothing any more
        leaves = (C.col(C.EFFECT) == LEAVES) & is_before & (start < forgotten) & F.lit(rule.cuts)
        lasts = (C.col(C.EFFECT) == ADDS) & (start < F.col("__first")) & (C.col(C.REACH) >= forgotten)
        reaches = ~existing & (leaves | (lasts & F.lit(isinstance(rule.gap, DynamicGap))))
        joins = reaches & leaves
        whole = {
            C.START: F.when(reaches, F.lit(-EVER)).otherwise(start),
            C.END: F.when(joins, F.greatest(C.col(C.END), first)).otherwise(C.col(C.END)),
            C.REACH: F.when(joins, F.greatest(C.col(C.REACH), first + 1)).otherwise(C.col(C.REACH)),
            C.COUNT: F.when(joins, F.lit(0)).otherwise(C.col(C.COUNT)),  # no row that is there held it
            "__first": F.when(reaches, F.lit(-EVER)).otherwise(F.col("__first")),
        }
        told = told.withColumns(whole)
    left = told.where(existing | (C.col(C.END) >= F.col("__first")))
    return left.withColumn(C.START, F.when(existing, start).otherwise(F.greatest(start, "__first"))).drop("__first")


def sessions_apart(near: DataFrame, final: DataFrame, changes: AcceptedChanges, rule: Rule) -> DataFrame:
    """Sessions of late events apart, of the populations that lose events: which one they are of, their ids tell.

    near: those that may be concerned; final: all.
    """
    start = F.unix_micros(C.col(C.SESSION_START))
    types = [f.dataType for f in near.select(*C.cols(rule.key)).schema.fields]
    numbers = [F.lit(n).cast("bigint") for n in changes.populations]
    late, ties = near.where(C.col(C.IS_LATE)), F.array(F.lit(0))
    if rule.by_content:  # so many events of its time may come before the first one of a session
        before = final.where(C.col(C.IS_LATE)).groupBy(*C.cols(rule.key), C.col(C.SESSION_END).alias(C.SESSION_START))
        most = before.agg(F.sum(C.col(C.EVENT_COUNT)).cast("int").alias("__most"))
        late = joined(late, most, (*rule.key, C.SESSION_START), "left")
        ties = F.sequence(F.lit(0), F.coalesce(F.col("__most"), F.lit(0)))

    def is_of(number: Column) -> Column:
        salts = F.transform(ties, lambda n: session_id(C.cols(rule.key), types, start, salt_of(number, n)))
        return F.array_contains(salts, C.col(C.SESSION_ID))

    mine = [F.when(is_of(number), number) for number in numbers]
    late = late.withColumn(C.POPULATION, F.coalesce(*mine, F.lit(None).cast("bigint")))
    told = bare_intervals(late, rule, C.POPULATION)
    return told.where(C.col(C.POPULATION).isNotNull())
