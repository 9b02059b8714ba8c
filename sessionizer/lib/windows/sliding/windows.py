"""Sliding windows of events, by frames over integer time (SEMANTICS §10, KIP-450).

A window is the closed interval `[start, start + d]`. Each distinct time `t` of a key has a *left window* `[t-d, t]`,
and a *right window* `[t+u, t+u+d]` if another event lies in it; times before `d` after the epoch share `[0, d]` for
their left window. Whatever windows hold, no two of a key hold the same events (for times since the epoch).
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import ADDS, JOINS, PENDING
from sessionizer.lib.aggregates.binding import Aggregate
from sessionizer.lib.joins import joined
from sessionizer.lib.time.micros import floor_div
from sessionizer.lib.time.watermarks import edges
from sessionizer.lib.windows.sliding.rule import SlidingRule

Aggregates = tuple[Aggregate, ...]
PAST = "past"  # `__effect` of a point that was accepted by an earlier run


def points(events: DataFrame, rule: SlidingRule, aggregates: Aggregates, *by: str) -> DataFrame:
    """One row for each distinct time of a key.

    In: source rows with `__us`, truncated. by: columns that keep rows apart, besides key and time.
    Out: the key columns, `by`, `__us`, `__count` (BIGINT), the parts of the aggregates; apart by verdict what `edges`
    makes of several sources.
    """
    parts = [part for a in aggregates for part in a.partial()]
    parts += edges(rule.events) if C.VERDICT in by else []
    grouped = events.groupBy(*C.cols((*rule.key, *by)), C.col(C.US))
    return grouped.agg(F.count(F.lit(1)).alias(C.COUNT), *parts)


def merge_points(found: DataFrame, rule: SlidingRule, aggregates: Aggregates) -> DataFrame:
    """Points of equal key and time as one; `__changed`, if it is there, is the greatest of theirs."""
    parts = [part for a in aggregates for part in a.merge()]
    flags = [flag.alias(C.CHANGED) for flag in _flags(found)]
    grouped = found.groupBy(*C.cols(rule.key), C.col(C.US))
    return grouped.agg(F.sum(C.col(C.COUNT)).alias(C.COUNT), *flags, *parts)


def windows(found: DataFrame, rule: SlidingRule, aggregates: Aggregates, *, early: bool = True) -> DataFrame:
    """The windows of points, each once.

    In: one row for each time of a key, as `points` makes them; those with a `__count` of 0 have no window of their
    own. early: whether some time may lie in `[0, d)`.
    Out: the key columns, `__start`, `__end`, `__last` (BIGINT; all inclusive, the last one is an event's time),
    `__count`, the parts. If points carry `__changed` (INT), windows have the greatest of the times in
    `[start - u, end]`: those are all that can change what the window holds, or whether it is there.
    """
    d, u = rule.difference, rule.unit
    t = C.col(C.US)
    timed = found.withColumn(C.VIRTUAL, F.lit(False))
    if early:
        timed = timed.unionByName(_before_the_epoch(found, rule), allowMissingColumns=True)
    by_time = Window.partitionBy(*C.cols(rule.key)).orderBy(t)
    left = _content(by_time.rangeBetween(-d, 0), by_time.rangeBetween(-rule.reach, 0), found, aggregates)
    right = _content(by_time.rangeBetween(u, u + d), by_time.rangeBetween(0, u + d), found, aggregates)
    sides = timed.select(
        *C.cols(rule.key),
        F.when((C.col(C.COUNT) > 0) & ~_is_early(t, rule), F.struct((t - d).alias(C.START), *left)).alias("__left"),
        F.when((C.col(C.COUNT) > 0) | C.col(C.VIRTUAL), F.struct((t + u).alias(C.START), *right)).alias("__right"),
        C.col(C.VIRTUAL),
    )
    both = F.array(F.col("__left"), F.when(_is_needed(F.col("__right"), rule), F.col("__right")))
    one_each = sides.select(*C.cols(rule.key), F.explode(both).alias("__window")).where("__window IS NOT NULL")
    flags = [C.CHANGED] if C.CHANGED in found.columns else []
    names = [C.LAST, C.COUNT, *flags, *[name for a in aggregates for name in a.part_columns]]
    window = F.col("__window")
    return one_each.select(
        *C.cols(rule.key),
        window[C.START].alias(C.START),
        (window[C.START] + d).alias(C.END),
        *[window[name].alias(name) for name in names],
    )


def near(events: DataFrame, changed: DataFrame, rule: SlidingRule) -> DataFrame:
    """Of events those that a change may concern: all within the rule's reach of a changed time of their key.

    In: rows with `__us`; changed: the key columns and `__us`. Out: the rows of the former, some farther ones too:
    they are found by buckets one reach wide, an equi-join that no key and no time makes explode.
    """
    bucket = floor_div(C.col(C.US), rule.reach)
    around = F.explode(F.array(bucket - 1, bucket, bucket + 1)).alias("__near")
    buckets = changed.select(*C.cols(rule.key), around).distinct()
    return joined(events.withColumn("__near", bucket), buckets, (*rule.key, "__near"), "left_semi").drop("__near")


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
    by_left = F.min(F.when(remembered & (t >= C.col("__h")) & ~_is_early(t, rule), t)).over(of_key)
    by_right = F.max(F.when(remembered, t)).over(all_before)
    seen = found.withColumn("__h", horizon).withColumns({"__by_left": by_left, "__by_right": by_right})
    enters = (
        F.coalesce(F.col("__by_left") <= t + d, F.lit(False))
        | F.coalesce(F.col("__by_right") >= F.col("__h") - rule.reach, F.lit(False))
        | (_is_early(t, rule) & (F.col("__h") <= d))
    )
    told = seen.withColumn(C.ENTERS, F.when(C.col(C.EFFECT) == PENDING, enters))
    return told.select(*C.cols((*found.columns, C.ENTERS)))


def _is_early(t: Column, rule: SlidingRule) -> Column:
    """Whether a time is so soon after the epoch that `[0, d]` is its left window."""
    return (t >= 0) & (t < rule.difference)


def _before_the_epoch(found: DataFrame, rule: SlidingRule) -> DataFrame:
    """A virtual time one unit before the epoch for each key with early times: its right window is what they share."""
    early = found.where(_is_early(C.col(C.US), rule) & (C.col(C.COUNT) > 0))
    return early.select(
        *C.cols(rule.key),
        F.lit(-rule.unit).cast("bigint").alias(C.US),
        F.lit(0).cast("bigint").alias(C.COUNT),
        F.lit(True).alias(C.VIRTUAL),
    ).distinct()


def _is_needed(right: Column, rule: SlidingRule) -> Column:
    """Whether a right window holds anything, and is not the left window of its last event, nor the early one again."""
    last = right[C.LAST]
    is_left = (last == right[C.START] + rule.difference) & ~_is_early(last, rule)
    return (right[C.COUNT] > 0) & ~is_left & (C.col(C.VIRTUAL) | (right[C.START] != 0))


def _content(frame: WindowSpec, felt: WindowSpec, found: DataFrame, aggregates: Aggregates) -> list[Column]:
    """What lies in a frame, and the flag of the times that its window feels."""
    return [
        F.max(F.when(C.col(C.COUNT) > 0, C.col(C.US))).over(frame).alias(C.LAST),
        F.sum(C.col(C.COUNT)).over(frame).alias(C.COUNT),
        *[flag.over(felt).alias(C.CHANGED) for flag in _flags(found)],
        *[part for a in aggregates for part in a.merge(over=lambda function: function.over(frame))],
    ]


def _flags(found: DataFrame) -> list[Column]:
    """`__changed` of several points: the greatest of theirs, if it is there."""
    return [F.max(C.col(C.CHANGED))] if C.CHANGED in found.columns else []
