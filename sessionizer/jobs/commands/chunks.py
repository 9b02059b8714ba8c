"""Chunks: the spans of a backfill that are committed one by one, as what lies in them asks for."""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.jobs.run.context import RunContext
from sessionizer.lib import columns as C
from sessionizer.lib.admission.validate import event_time_us, gap_us
from sessionizer.lib.admission.verdicts import IN
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.durations import DAY
from sessionizer.lib.time.micros import floor_div, timestamp

MOST = 20_000_000  # rows that one commit recomputes, unless a day has more

Chunk = tuple[int, int]


def chunks(context: RunContext, low: int, high: int, length: int | None) -> list[Chunk]:
    """The spans [low, high) that hold anything: of this length, or (None) whole days of at most so many rows together.

    Where nothing lies, nothing is to be recomputed. There is always at least one, and the last ends at `high`.
    """
    unit = DAY if length is None else length
    if high - low <= unit:
        return [(low, high)]
    place, rows = floor_div(C.col(C.US) - low, unit), F.count(F.lit(1))
    with context.kind.tables.events.reading(context.increment):
        filled = _times(context, low, high).groupBy(place.alias("place")).agg(rows.alias("rows")).collect()
    return spans_of({row["place"]: row["rows"] for row in filled}, low, high, length)


def spans_of(filled: Mapping[int, float], low: int, high: int, length: int | None) -> list[Chunk]:
    """The same of places: the n-th stretch of this length, or (None) day from `low` on, and how many rows lie there.

    >>> spans_of({0: 1, 4: 1, 5: 1}, 0, 60, 10)
    [(0, 10), (40, 50), (50, 60)]
    """
    unit, spans = DAY if length is None else length, list[tuple[int, int, float]]()
    for start, end, number in sorted((low + n * unit, min(low + (n + 1) * unit, high), k) for n, k in filled.items()):
        if length is None and spans and spans[-1][2] + number <= MOST:
            spans[-1] = spans[-1][0], end, spans[-1][2] + number
        else:
            spans.append((start, end, number))
    starts_and_ends = [(start, end) for start, end, _ in spans] or [(low, high)]
    return [*starts_and_ends[:-1], (starts_and_ends[-1][0], high)]


def _times(context: RunContext, low: int, high: int) -> DataFrame:
    """`__us` of what lies in [low, high): events, rejected ones too, and rows of the table, by where they come in.

    Windows of events from before it may end in it, and go by whole units of time. Events with gaps of their own that no
    longer last behind what has been forgotten are of no session that is left; nor are those as old that stay out.
    """
    rule, of_windows = context.rule, context.kind.name == "windows"

    def whole(us: Column) -> Column:
        return floor_div(us, rule.time_unit) * rule.time_unit

    since = low - rule.reach_back
    events, rejects = context.past.events([(since, high + rule.time_unit - 2)]), context.rejects()
    layout = context.kind.home.layout
    timed, lasting = events.select("*", whole(event_time_us(events, rule)).alias(C.US)), C.col(C.US) >= since
    if isinstance(rule.gap, DynamicGap) and (forgotten := context.clock.forgotten) is not None:
        lasting &= C.col(C.US) + F.coalesce(gap_us(rule.gap, events), F.lit(0)) + rule.time_unit >= forgotten
        young = (C.col(C.EVENT_TIME) >= timestamp(forgotten)) | (C.col(C.KEPT) == IN)
        rejects = None if rejects is None else rejects.where(young)
    stored = context.kind.home.table.read(context.position.version)
    touching = stored.where((C.col(layout.start) < timestamp(high)) & (C.col(layout.end) >= timestamp(low)))
    found = [
        timed.select(F.when(lasting, F.greatest(C.col(C.US), F.lit(low))).alias(C.US)),
        touching.select(F.greatest(F.unix_micros(C.col(layout.start)), F.lit(low)).alias(C.US)),
    ]
    if rejects is not None:
        us = F.unix_micros(C.col(C.EVENT_TIME))
        counting = (C.col(C.KEPT) == IN) & (whole(us) >= since) & F.lit(of_windows)
        found += [rejects.select(us.alias(C.US))]
        found += [rejects.where(counting).select(F.greatest(whole(us), F.lit(low)).alias(C.US))]
    return reduce(DataFrame.unionByName, found).where((C.col(C.US) >= low) & (C.col(C.US) < high))
