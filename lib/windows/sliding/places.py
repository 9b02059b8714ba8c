"""Which old events still enter a sliding window, for `lateness: session` (SEMANTICS §10, KIP-450)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.accepted import ADDS, JOINS, PENDING
from lib.windows.sliding.rule import SlidingRule

PAST = "past"  # `__effect` of a point that was accepted by an earlier run


def mark_entering(found: DataFrame, rule: SlidingRule) -> DataFrame:
    """Points with `__enters`: whether a pending one lies in a window that is open.

    A window is open iff its end is at or after the horizon as it stood before the run. An old time `t` lies in one
    iff there is (a) a remembered time in `[horizon, t+d]`, whose left window reaches back to `t`, or (b) one in
    `[horizon-d-u, t-u]`, whose right window reaches on to `t`, or (c) `t` is within `d` after the epoch, and `[0, d]`
    is open. Old events of the same run open no window to each other: those that (b) would lead to, (a) has led to.

    In: points with `__effect` (`past`, `adds` and `joins` are remembered) and, on new ones, `__horizon`; all that lie
    within the rule's reach of a pending one.
    """
    d, u = rule.difference, rule.unit
    t = C.col(C.US)
    remembered = C.col(C.EFFECT).isin(PAST, ADDS, JOINS)
    of_key = Window.partitionBy(*C.cols(rule.key))
    all_before = of_key.orderBy(t).rangeBetween(Window.unboundedPreceding, -u)
    horizon = F.max(C.col(C.H)).over(of_key)
    by_left = F.min(F.when(remembered & (t >= C.col("__h")) & ~is_early(t, rule), t)).over(of_key)
    by_right = F.max(F.when(remembered, t)).over(all_before)
    seen = found.withColumn("__h", horizon).withColumns({"__by_left": by_left, "__by_right": by_right})
    enters = (
        F.coalesce(F.col("__by_left") <= t + d, F.lit(False))
        | F.coalesce(F.col("__by_right") >= F.col("__h") - rule.reach, F.lit(False))
        | (is_early(t, rule) & (F.col("__h") <= d))
    )
    told = seen.withColumn(C.ENTERS, F.when(C.col(C.EFFECT) == PENDING, enters))
    return told.select(*C.cols((*found.columns, C.ENTERS)))


def is_early(t: Column, rule: SlidingRule) -> Column:
    """Whether a time is so soon after the epoch that `[0, d]` is its left window."""
    return (t >= 0) & (t < rule.difference)
