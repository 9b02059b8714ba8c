"""Islands: the only place that cuts (SEMANTICS §2)."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.rule import Rule


def mark_islands(intervals: DataFrame, rule: Rule) -> DataFrame:
    """Intervals of each key, numbered by the session they belong to.

    An interval starts a new island iff it begins beyond the *running maximum* of the reach (`__end` + gap) of all
    intervals of its key before it: strictly beyond for `gap_boundary: joins`, at or beyond for `splits`.
    Equal starts need no further order: they are less than a gap apart, so they share an island anyway.

    In: the key columns, `__start`, `__end` (BIGINT microseconds, both inclusive) and whatever else travels along.
    Out: the same and `__island` BIGINT, 1, 2, … in time order per key.
    """
    by_time = Window.partitionBy(*C.cols(rule.key)).orderBy(C.START, C.END)
    all_before = by_time.rowsBetween(Window.unboundedPreceding, -1)
    up_to_here = by_time.rowsBetween(Window.unboundedPreceding, 0)
    reach = F.max(C.col(C.END) + rule.gap).over(all_before)
    beyond = C.col(C.START) > reach if rule.gap_boundary == "joins" else C.col(C.START) >= reach
    starts = F.when(beyond, 1).otherwise(0)
    return intervals.select("*", (F.sum(starts).over(up_to_here) + 1).alias(C.ISLAND))
