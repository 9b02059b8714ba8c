"""Spans of time, in microseconds, both ends inclusive: what reads of a table are pruned by."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from lib.durations import DAY
from lib.time.micros import floor_div

Spans = Sequence[tuple[int, int]]
# Spans that one read is pruned by: each takes time to plan, and files seldom end within a day.
NEAR, APART = 64, DAY


def within(time: Column, spans: Spans) -> Column:
    """Whether a time (BIGINT microseconds) lies in one of the spans."""
    return reduce(or_, [time.between(low, high) for low, high in spans], F.lit(False))


def within_times(time: Column, spans: Spans) -> Column:
    """The same of a TIMESTAMP; by literals, so that files stay closed."""
    at = F.timestamp_micros
    return reduce(or_, [time.between(at(F.lit(low)), at(F.lit(high))) for low, high in spans], F.lit(False))


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


def by_day(low: Column, high: Column) -> tuple[Column, list[Column]]:
    """How to group rows by the day of `low`, and what then bounds them as `low` and `high`: few rows to collect."""
    return floor_div(low, DAY), [F.min(low).alias("low"), F.max(high).alias("high")]
