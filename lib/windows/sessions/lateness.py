"""Lateness judged by groups: an event is late with the session it would be part of (KIP-94; SEMANTICS §6)."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import verdict_if_late
from lib.admission.past import aliased, same_as_aliased, without_aliases
from lib.rule import Rule
from lib.time.watermarks import WatermarkState, with_clock
from lib.windows.sessions.fold import bucket
from lib.windows.sessions.islands import mark_islands


def judge_groups(folded: DataFrame, existing: DataFrame | None, rule: Rule, clock: WatermarkState) -> DataFrame:
    """Partials with the verdict of their group: late iff the merged reach lies before the horizon, strictly.

    In: what `fold` returns; the sessions that events may join, as intervals. Out: the columns of `fold`.
    """
    fresh = folded.where(C.col(C.VERDICT).isNull()).withColumn("__there", F.lit(False))
    if existing is not None:
        places = existing.select(*C.cols((*rule.key, C.START, C.END, C.REACH)), F.lit(True).alias("__there"))
        fresh = fresh.unionByName(places, allowMissingColumns=True)
    marked = with_clock(mark_islands(fresh, rule), rule, clock)
    group = Window.partitionBy(*C.cols(rule.key), C.col(C.ISLAND))
    late = F.max(C.col(C.REACH)).over(group) < C.col(C.H)
    judged = marked.withColumn(C.VERDICT, F.when(late, verdict_if_late(rule)))
    mine = judged.where(~F.col("__there")).select(*C.cols(tuple(folded.columns)))
    return folded.where(C.col(C.VERDICT).isNotNull()).unionByName(mine)


def name_late(judged: DataFrame, folded: DataFrame, rule: Rule) -> DataFrame:
    """Judged events, those late by their group named: by the bucket that they were folded into.

    In: what `events.judge_late` returns; what `judge_groups` returns.
    """
    late = folded.where(C.col(C.VERDICT) == verdict_if_late(rule)).select(*C.cols((*rule.key, C.BUCKET)))
    key = (*rule.key, C.BUCKET)
    named = aliased(late.withColumn("__late", F.lit(verdict_if_late(rule))), key)
    joined = judged.withColumn(C.BUCKET, bucket(rule.bucket)).join(named, same_as_aliased(key), "left")
    verdict = F.coalesce(C.col(C.VERDICT), F.col("__late"))
    return without_aliases(joined.withColumn(C.VERDICT, verdict)).drop("__late", C.BUCKET)
