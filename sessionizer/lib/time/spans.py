"""Spans of time, in microseconds, both ends inclusive: what reads of a table are pruned by."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.lib.compute import Compute
from sessionizer.lib.durations import DAY
from sessionizer.lib.time.micros import floor_div

Spans = Sequence[tuple[int, int]]
# Spans that one read is pruned by: each takes time to plan, and files seldom end within a day.
NEAR, APART = 64, DAY
LAST = 2**63 - 1  # the last microsecond there is


def within(time: Column, spans: Spans) -> Column:
    """Whether a time (BIGINT microseconds) lies in one of the spans."""
    return reduce(or_, [time.between(low, high) for low, high in spans], F.lit(False))


def within_times(time: Column, spans: Spans) -> Column:
    """The same of a TIMESTAMP; by literals, so that files stay closed."""
    at = F.timestamp_micros
    return reduce(or_, [time.between(at(F.lit(low)), at(F.lit(high))) for low, high in spans], F.lit(False))


def overlapping(start: Column, end: Column, spans: Spans) -> Column:
    """Whether what lasts between two TIMESTAMPs overlaps one of the spans; by literals, too."""
    at = F.timestamp_micros
    return reduce(or_, [(start <= at(F.lit(high))) & (end >= at(F.lit(low))) for low, high in spans], F.lit(False))


def near_spans(spans: Spans, most: int = NEAR, apart: int = APART) -> list[tuple[int, int]]:
    """At most so many spans, further apart than that (microseconds), that cover all of these: narrow gaps are closed.

    >>> near_spans([(0, 1), (100, 101), (3, 4)], apart=5)
    [(0, 4), (100, 101)]
    >>> near_spans([(0, 1), (100, 101), (3, 4)], most=2, apart=0)
    [(0, 4), (100, 101)]
    """
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low - merged[-1][1] <= apart:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    gaps = sorted(range(1, len(merged)), key=lambda i: merged[i][0] - merged[i - 1][1], reverse=True)
    cuts = sorted(gaps[: most - 1])
    parts = [merged[a:b] for a, b in zip([0, *cuts], [*cuts, len(merged)], strict=True)]
    return [(part[0][0], part[-1][1]) for part in parts if part]


def day_spans(rows: DataFrame, time: Column, compute: Compute, margin: int = 0) -> list[tuple[int, int]]:
    """Few spans that hold these times (BIGINT microseconds; null: none) with a margin; collects a row for each day."""
    days = rows.where(time.isNotNull()).groupBy(floor_div(time, DAY))
    edges = compute.rows(days.agg(F.min(time).alias("low"), F.max(time).alias("high")))
    return near_spans([(max(row["low"] - margin, -LAST), min(row["high"] + margin, LAST)) for row in edges])
