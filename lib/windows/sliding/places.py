"""Which old events still enter a sliding window, for `lateness: session` (SEMANTICS §10, KIP-450)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import AMENDED, CORRECTED, LATE
from lib.windows.sliding.rule import SlidingRule

OLD = "old"  # older than the horizon: late unless it enters a window that is still open
PAST = "past"  # accepted by an earlier run


def admit(found: DataFrame, rule: SlidingRule) -> DataFrame:
    """Points whose `old` are decided: null for one that enters an open window, else `late`.

    A window is open iff its end is at or after the horizon as it stood before the run. An old time `t` lies in one
    iff there is (a) a remembered time in `[horizon, t+d]`, whose left window reaches back to `t`, or (b) one in
    `[horizon-d-u, t-u]`, whose right window reaches on to `t`, or (c) `t` is within `d` after the epoch, and `[0, d]`
    is open. Old events of the same run open no window to each other: those that (b) would lead to, (a) has led to.

    In: points with `__verdict` (`past`, `amended`, `corrected` and null for remembered ones, `old`, others) and, on
    new ones, `__horizon`; all that lie within the rule's reach of an old one.
    Out: the same rows.
    """
    d, u = rule.difference, rule.unit
    t, verdict = C.col(C.US), C.col(C.VERDICT)
    remembered = verdict.isNull() | verdict.isin(PAST, AMENDED, CORRECTED)
    of_key = Window.partitionBy(*C.cols(rule.key))
    all_before = of_key.orderBy(t).rangeBetween(Window.unboundedPreceding, -u)
    horizon = F.max(C.col(C.H)).over(of_key)
    by_left = F.min(F.when(remembered & (t >= C.col("__h")) & ~_is_early(t, d), t)).over(of_key)
    by_right = F.max(F.when(remembered, t)).over(all_before)
    seen = found.withColumn("__h", horizon).withColumns({"__by_left": by_left, "__by_right": by_right})
    enters = (
        F.coalesce(F.col("__by_left") <= t + d, F.lit(False))
        | F.coalesce(F.col("__by_right") >= F.col("__h") - rule.reach, F.lit(False))
        | (_is_early(t, d) & (F.col("__h") <= d))
    )
    decided = F.when(verdict != OLD, verdict).when((verdict == OLD) & ~enters, LATE)
    return seen.withColumn(C.VERDICT, decided).select(*C.cols(tuple(found.columns)))


def _is_early(t: Column, d: int) -> Column:
    return (t >= 0) & (t < d)
