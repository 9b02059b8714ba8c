"""Islands: the only place that cuts, but for `max_duration` (SEMANTICS §2)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.rule import Rule
from sessionizer.lib.windows.sessions.intervals import apart


def mark_islands(intervals: DataFrame, rule: Rule, *by: str) -> DataFrame:
    """Intervals of each key (and population, and `by`), numbered by the session they belong to.

    An interval starts a new island iff it begins beyond the *running maximum* of the reach of all intervals of its
    key before it: strictly beyond for `gap_boundary: joins`, at or beyond for `splits`.
    Equal starts need no further order: a gap is longer than nothing, so they share an island anyway.

    In: the key columns, `__start`, `__end`, `__reach` (BIGINT microseconds) and whatever else travels along.
    Out: the same and `__island` BIGINT, 1, 2, … in time order per key.
    """
    by_time = Window.partitionBy(*C.cols((*apart(intervals, rule), *by))).orderBy(C.START, C.END)
    all_before = by_time.rowsBetween(Window.unboundedPreceding, -1)
    up_to_here = by_time.rowsBetween(Window.unboundedPreceding, 0)
    reach = F.max(C.col(C.REACH)).over(all_before)
    starts = F.when(beyond(C.col(C.START), reach, rule), 1).otherwise(0)
    return intervals.select("*", (F.sum(starts).over(up_to_here) + 1).alias(C.ISLAND))


def beyond(start: Column, reach: Column, rule: Rule) -> Column:
    """Whether an event or interval that starts there is out of reach; null where nothing reaches."""
    return start > reach if rule.gap_boundary == "joins" else start >= reach
