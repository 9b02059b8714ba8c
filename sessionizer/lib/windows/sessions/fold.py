"""Fold: events of a key in the same gap-wide bucket become one partial session, before any sort."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.binding import Aggregate
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import floor_div
from sessionizer.lib.time.watermarks import edges
from sessionizer.lib.windows.sessions.intervals import apart


def fold(events: DataFrame, rule: Rule, aggregates: tuple[Aggregate, ...], *by: str, whole: bool = False) -> DataFrame:
    """Partial sessions of events.

    Two events of a key in one bucket `[n·width, (n+1)·width)` are less than a gap apart, so they share a session
    under either boundary. Rejected events are folded beside, by verdict, so that one pass counts everything.

    In: rows with `__us` (and `__gap`). by: columns that keep partials apart, besides key and population. whole: these
    tell sessions apart already.
    Out: the key columns, `__population` if it is there, `by`, `__bucket`, `__start`, `__end`, `__reach`, `__count`
    (BIGINT), the parts of the aggregates; of what `cut` tells, `__why` and `__ahead`; apart by verdict what `edges`
    makes of several sources.
    """
    number = F.lit(0).cast("bigint") if whole else bucket(rule.bucket)
    bucketed, told = events.withColumn(C.BUCKET, number), [n for n in (C.WHY, C.AHEAD) if n in events.columns]
    grouped = bucketed.groupBy(*C.cols((*by, *apart(events, rule))), C.col(C.BUCKET))
    # An event that is rejected may lie so near the end of all time that it has no reach.
    if isinstance(rule.gap, DynamicGap):
        reach = F.max(F.try_add(C.col(C.US), C.col(C.GAP)))
    else:
        reach = F.try_add(F.max(C.col(C.US)), F.lit(rule.gap))
    return grouped.agg(
        F.min(C.col(C.US)).alias(C.START),
        F.max(C.col(C.US)).alias(C.END),
        reach.alias(C.REACH),
        F.count(F.lit(1)).alias(C.COUNT),
        *[part for a in aggregates for part in a.partial()],
        *[F.max(C.col(name)).alias(name) for name in told],
        *(edges(rule) if C.VERDICT in by else []),
    )


def bucket(width: int) -> Column:
    """The number of the bucket of this width that an event's `__us` lies in."""
    return C.col(C.US) if width == 1 else floor_div(C.col(C.US), width)
